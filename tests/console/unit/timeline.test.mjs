import assert from "node:assert/strict";
import { test } from "node:test";

import { densityOf, loadOf } from "../../../src/weft/console/timeline/density.js";
import { barsOf, expectedOf, lanesOf, nowOf } from "../../../src/weft/console/timeline/lanes.js";
import { duration, ticksOf } from "../../../src/weft/console/timeline/ticks.js";

const [QUEUED, RUNNING, COMPLETED, FAILED, RETRY, WAITING] = [1, 2, 3, 4, 7, 8];
const NODES = { nodes: ["a", "b", "c", "d"], handlers: ["echo", "wait"], handler: [0, 0, 0, 1] };

/** An answer of the API. Attempts are [node, number, queued, started, finished, outcome, worker]. */
function timeline(attempts, more = {}) {
  const names = ["node", "number", "queued", "started", "finished", "outcome", "worker"];
  return {
    created_at: "2026-11-18T00:00:00.000Z",
    started_at: "2026-11-18T00:00:00.000Z",
    finished_at: null,
    now: "2026-11-18T00:00:10.000Z",
    attempts: Object.fromEntries(names.map((name, at) => [name, attempts.map((one) => one[at])])),
    workers: ["w1", "w2"],
    critical_path: [],
    expected: null,
    ...more,
  };
}

/** So many attempts, one after the other on each of eight workers' slots. */
function many(count) {
  return timeline(Array.from({ length: count }, (_, i) => {
    const begin = Math.floor(i / 8) * 5;
    return [i, 1, begin, begin + 1, begin + 5, i % 50 === 0 ? "F" : "C", i % 2];
  }), { finished_at: "2026-11-18T00:00:00.000Z" });
}

test("a wait, a run and their outcome are taken as they are answered", () => {
  const bars = barsOf(timeline([[0, 1, 0, 100, 400, "C", 0], [1, 1, 5, 50, 60, "F", 0], [1, 2, 70, 80, 90, "L", 1]]), NODES);
  assert.deepEqual([bars.queued[0], bars.started[0], bars.finished[0]], [0, 100, 400]);
  assert.deepEqual(Array.from(bars.kind), [COMPLETED, FAILED, RETRY]);
  assert.deepEqual(Array.from(bars.lost), [0, 0, 1]);
  assert.equal(bars.last, 400);
});

test("what has not happened yet ends now", () => {
  const bars = barsOf(timeline([[0, 1, 0, 100, null, null, 0], [1, 1, 20, null, null, null, null]]), NODES);
  assert.deepEqual(Array.from(bars.finished), [10_000, 10_000]);
  assert.deepEqual(Array.from(bars.kind), [RUNNING, QUEUED]);
  assert.equal(bars.started[1], 10_000);
});

test("a node that waits is told from one that runs, and a look of a poll from a failure", () => {
  const bars = barsOf(timeline([[3, 1, 0, 0, null, null, null], [3, 1, 0, 0, 9, "C", null], [0, 1, 0, 1, 2, "P", 0], [0, 2, 4, 5, null, null, 0]]), NODES);
  assert.deepEqual(Array.from(bars.kind), [WAITING, COMPLETED, WAITING, RUNNING]);
  assert.deepEqual(Array.from(bars.waits), [1, 1, 0, 0]);
});

test("no bar runs backwards, whatever clocks said", () => {
  const bars = barsOf(timeline([[0, 1, 200, 100, 50, "C", 0], [1, 1, null, 30, 40, "C", 0]]), NODES);
  for (let i = 0; i < bars.count; i++) {
    assert.ok(bars.queued[i] <= bars.started[i] && bars.started[i] <= bars.finished[i]);
  }
  assert.equal(bars.queued[1], 30);
});

test("an execution without attempts has no bars and no lanes", () => {
  const bars = barsOf(timeline([]), NODES);
  assert.equal(lanesOf(bars, "node").count, 0);
  assert.equal(lanesOf(bars, "worker").count, 0);
});

test("a node has one lane for all its attempts, ordered by when it was first queued", () => {
  const answer = timeline([[2, 1, 0, 1, 5, "C", 0], [0, 1, 3, 4, 9, "F", 0], [0, 2, 10, 11, 12, "C", 0], [1, 1, 2, 6, 7, "C", 1]]);
  const lanes = lanesOf(barsOf(answer, NODES), "node");
  assert.deepEqual(Array.from(lanes.node), [2, 1, 0]);
  assert.deepEqual(Array.from(lanes.bars.subarray(lanes.start[2], lanes.start[3])), [1, 2]);
});

test("every attempt has exactly one place, in lanes of nodes and of workers", () => {
  const bars = barsOf(many(5000), { nodes: [] });
  for (const by of ["node", "worker"]) {
    const lanes = lanesOf(bars, by);
    assert.deepEqual(Array.from(lanes.bars).sort((a, b) => a - b), Array.from({ length: 5000 }, (_, i) => i));
    assert.equal(lanes.start[lanes.count], 5000);
  }
});

test("a worker has as many lanes as attempts ran there at once, and no two of a lane overlap", () => {
  const bars = barsOf(many(5000), { nodes: [] });
  const lanes = lanesOf(bars, "worker");
  assert.equal(lanes.count, 8);
  assert.deepEqual(Array.from(lanes.worker), [0, 0, 0, 0, 1, 1, 1, 1]);
  for (let lane = 0; lane < lanes.count; lane++) {
    for (let at = lanes.start[lane] + 1; at < lanes.start[lane + 1]; at++) {
      assert.ok(bars.finished[lanes.bars[at - 1]] <= bars.started[lanes.bars[at]]);
    }
  }
});

test("attempts that no worker has taken share a lane at the end", () => {
  const answer = timeline([[0, 1, 0, 1, 5, "C", 1], [1, 1, 2, null, null, null, null], [2, 1, 3, null, null, null, null]]);
  const lanes = lanesOf(barsOf(answer, NODES), "worker");
  assert.deepEqual(Array.from(lanes.worker), [1, -1]);
  assert.equal(lanes.start[2] - lanes.start[1], 2);
});

test("what needs no worker has lanes of its own, in which nothing overlaps", () => {
  const answer = timeline([[0, 1, 0, 1, 5, "C", 0], [3, 1, 0, 0, null, null, null], [3, 2, 2, 2, 4, "C", null], [1, 1, 3, null, null, null, null]]);
  const lanes = lanesOf(barsOf(answer, NODES), "worker");
  assert.deepEqual(Array.from(lanes.worker), [0, -2, -2, -1]);
  assert.deepEqual(Array.from(lanes.bars), [0, 1, 2, 3]);
});

test("the critical path marks its attempts, in its order, and lanes can be narrowed to it", () => {
  const attempts = [[0, 1, 0, 1, 2, "F", 0], [0, 2, 2, 3, 4, "C", 0], [1, 1, 0, 1, 2, "C", 0], [2, 1, 4, 5, 6, "C", 0]];
  const path = [{ node: "a", attempt: 2 }, { node: "c", attempt: 1 }, { node: "not here", attempt: 1 }];
  const bars = barsOf(timeline(attempts, { critical_path: path }), NODES);
  assert.deepEqual(Array.from(bars.path), [1, 3]);
  assert.deepEqual(Array.from(bars.critical), [0, 1, 0, 1]);
  assert.deepEqual(Array.from(lanesOf(bars, "node", true).node), [0, 2]);
});

test("the expected end is in view, with its spread", () => {
  const at = (seconds) => `2026-11-18T00:00:${seconds}.000Z`;
  const answer = timeline([[0, 1, 0, 1, null, null, 0]], { expected: { finish_at: at(20), low_at: at(18), high_at: at(25) } });
  assert.deepEqual(expectedOf(answer), { at: 20_000, low: 18_000, high: 25_000 });
  assert.equal(barsOf(answer, NODES).last, 25_000);
  assert.equal(nowOf(answer), 10_000);
  assert.equal(expectedOf(timeline([])), null);
});

for (const rowHeight of [22, 3, 1, 0.05]) {
  test(`every bar is drawn alone or counted in a cell, at rows of ${rowHeight} pixels`, () => {
    const bars = barsOf(many(20_000), { nodes: [] });
    const lanes = lanesOf(bars, "node");
    const window = { from: bars.first, to: bars.last, width: 1000, rowHeight, top: 0, height: lanes.count * rowHeight };
    const density = densityOf(bars, lanes, window);
    const counted = density.count.reduce((sum, one) => sum + one, 0);
    assert.equal(counted, density.narrow);
    assert.equal(density.wide.length + density.narrow, 20_000);
  });
}

test("a bar of two pixels is drawn alone, and a narrower one is not", () => {
  const bars = barsOf(timeline([[0, 1, 0, 0, 20, "C", 0], [1, 1, 0, 0, 19, "C", 0], [2, 1, 9000, 9000, 10_000, "C", 0]]), NODES);
  const density = densityOf(bars, lanesOf(bars, "node"), { from: 0, to: 10_000, width: 1000, rowHeight: 20, top: 0, height: 100 });
  assert.deepEqual(Array.from(density.wide).sort(), [0, 2]);
  assert.equal(density.narrow, 1);
});

test("a failure shows where it shares a cell with what completed", () => {
  const attempts = Array.from({ length: 100 }, (_, i) => [i, 1, 0, 0, 1, i === 50 ? "F" : "C", 0]);
  const bars = barsOf(timeline(attempts), { nodes: [] });
  const density = densityOf(bars, lanesOf(bars, "node"), { from: 0, to: 10_000, width: 100, rowHeight: 0.01, top: 0, height: 10 });
  assert.equal(density.rows, 1);
  assert.equal(density.count[0], 100);
  assert.equal(density.kind[0], FAILED);
});

test("only what is seen is looked at", () => {
  const bars = barsOf(many(20_000), { nodes: [] });
  const density = densityOf(bars, lanesOf(bars, "node"), { from: 0, to: bars.last, width: 1000, rowHeight: 20, top: 4000, height: 400 });
  assert.equal(density.wide.length + density.narrow, 20);
  assert.ok(density.rows <= 21);
});

test("the overview counts how many attempts ran at once", () => {
  // Two at once in the first half, one in the second.
  const bars = barsOf(timeline([[0, 1, 0, 0, 100, "C", 0], [1, 1, 0, 0, 50, "F", 0]]), NODES);
  const load = loadOf(bars, 10);
  const at = (column, kind) => Math.round(load[column * 9 + kind] * 1000) / 1000;
  assert.deepEqual([at(0, COMPLETED), at(0, FAILED), at(9, COMPLETED), at(9, FAILED)], [1, 1, 1, 0]);
});

test("the overview leaves out what waits", () => {
  const bars = barsOf(timeline([[0, 1, 0, 0, 100, "C", 0], [3, 1, 0, 0, null, null, null]]), NODES);
  const load = loadOf(bars, 10);
  assert.ok(load[COMPLETED] > 0);
  for (let column = 0; column < 10; column++) assert.equal(load[column * 9 + WAITING], 0);
});

test("marks of the axis are round and far enough apart", () => {
  assert.deepEqual(ticksOf(0, 10_000, 10), [0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10_000]);
  for (const length of [3, 700, 61_000, 86_400_000, 4e10]) assert.ok(ticksOf(0, length, 8).length <= 9, `${length}`);
});

test("durations read as people write them", () => {
  const words = [0, 420, 3200, 59_990, 245_000, 7_800_000, 3_600_000, 90_000_000, -5];
  assert.deepEqual(words.map(duration), ["0 ms", "420 ms", "3.2 s", "1 min", "4 min 05 s", "2 h 10 min", "1 h", "1 d 01 h", "−5 ms"]);
});
