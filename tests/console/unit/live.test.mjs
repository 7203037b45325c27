import assert from "node:assert/strict";
import { test } from "node:test";
import { applyFrame } from "../../../src/weft/console/live.js";
import { SseParser } from "../../../src/weft/console/ui/sse.js";

const snapshot = { generation: 1, state: "RUNNING", states: "CRPP", counts: { COMPLETED: 1 }, seq: 3, at: "2026-01-01T00:00:00Z" };

test("a stream may come in any pieces", () => {
  const text = ": ping\n\nid: 4\nevent: changes\ndata: {\"a\":\ndata: 1}\r\n\r\nretry: 250\ndata:x\n\n";
  for (const size of [1, 2, 3, 7, 1000]) {
    const told = [];
    const parser = new SseParser((one) => told.push(one));
    for (let i = 0; i < text.length; i += size) parser.push(text.slice(i, i + size));
    assert.deepEqual(told, [
      { event: "changes", data: '{"a":\n1}', id: "4" },
      { event: "message", data: "x", id: "4" },
    ]);
    assert.equal(parser.retryMs, 250);
  }
});

test("changes go into the states of the snapshot before them", () => {
  const { live } = applyFrame(null, "snapshot", snapshot);
  assert.deepEqual([...live.states], [3, 2, 0, 0]);
  const next = applyFrame(live, "changes", { changes: [[1, "C"], [2, "R"], [0, "C"], [99, "F"]], counts: {}, state: "RUNNING", seq: 5, at: "x" });
  assert.deepEqual(next.changes, [[1, 3], [2, 2]]);
  assert.deepEqual([...next.live.states], [3, 3, 2, 0]);
  assert.equal(next.live.generation, 1);
  assert.equal(next.live.seq, 5);
});

test("changes without a snapshot, and other events, change nothing", () => {
  assert.equal(applyFrame(null, "changes", { changes: [] }), null);
  assert.equal(applyFrame(applyFrame(null, "snapshot", snapshot).live, "end", {}), null);
});
