import assert from "node:assert/strict";
import { test } from "node:test";
import { callQuery, mergeRows, viewText } from "../../../src/weft/console/executions/query.js";
import { forEach } from "../../../src/weft/console/executions/bulk.js";
import { codesOfLetters, STATES } from "../../../src/weft/console/ui/states.js";
import { formatAgo, formatBytes, formatCount, formatSeconds } from "../../../src/weft/console/ui/time.js";
import { rowsInSight } from "../../../src/weft/console/ui/virtual_list.js";

test("states have their codes and letters in one order", () => {
  assert.equal(STATES.map((state) => state.letter).join(""), "PQRCFSXTW");
  STATES.forEach((state, i) => assert.equal(state.code, i));
  assert.deepEqual([...codesOfLetters("CFT?")], [3, 4, 7, 0]);
});

test("durations are short and exact enough", () => {
  const shown = [0, 0.0421, 1.24, 12.4, 59.99, 61, 3600, 90061, null].map(formatSeconds);
  assert.deepEqual(shown, ["0 s", "42 ms", "1.2 s", "12 s", "60 s", "1 min 1 s", "1 h", "1 d 1 h", "–"]);
  assert.equal(formatAgo("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:03:20Z")), "3 min ago");
  assert.equal(formatAgo("2026-01-01T00:00:10Z", Date.parse("2026-01-01T00:00:00Z")), "in 10 s");
  assert.equal(formatCount(1234567), "1\u202f234\u202f567");
  assert.deepEqual([999, 1500, 16_000_000].map(formatBytes), ["999 B", "1.5 kB", "16 MB"]);
});

test("a list draws the rows in sight and some around them", () => {
  assert.deepEqual(rowsInSight({ top: 0, height: 100, rowHeight: 10, count: 1000, spare: 2 }), [0, 12]);
  assert.deepEqual(rowsInSight({ top: 500, height: 100, rowHeight: 10, count: 1000, spare: 2 }), [48, 62]);
  assert.deepEqual(rowsInSight({ top: 9990, height: 100, rowHeight: 10, count: 20, spare: 2 }), [20, 20]);
});

test("the address of the list is what the server is asked", () => {
  const query = new URLSearchParams("state=FAILED&state=RUNNING&q=abc&since=1h&tab=x&error=");
  const asked = callQuery(query, Date.parse("2026-01-01T12:00:30Z"));
  assert.deepEqual(asked, { q: "abc", state: ["FAILED", "RUNNING"], created_after: "2026-01-01T11:00:00.000Z" });
  assert.equal(viewText(query), viewText(new URLSearchParams("q=abc&state=RUNNING&since=1h&state=FAILED")));
});

test("fresh rows replace known ones and newer ones go to the front", () => {
  const rows = mergeRows([{ id: "b", n: 1 }, { id: "a", n: 1 }], [{ id: "c", n: 2 }, { id: "b", n: 2 }]);
  assert.deepEqual(rows, [{ id: "c", n: 2 }, { id: "b", n: 2 }, { id: "a", n: 1 }]);
});

test("a refused one of many does not stop the others", async () => {
  const { done, refused } = await forEach([1, 2, 3, 4, 5, 6], async (n) => {
    if (n === 2) throw new Error("no");
  });
  assert.equal(done, 5);
  assert.deepEqual(refused, [{ item: 2, message: "no" }]);
});
