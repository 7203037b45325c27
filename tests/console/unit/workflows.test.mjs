import assert from "node:assert/strict";
import { test } from "node:test";
import { heightsOf, inWords } from "../../../src/weft/console/workflow/bars.js";
import { countStatistics, share } from "../../../src/weft/console/workflow/statistics.js";

const at = (/** @type {number} */ seconds) => new Date(seconds * 1000).toISOString();
const ran = (/** @type {string} */ state, /** @type {number | null} */ seconds) => ({
  id: state, state, started_at: at(0), finished_at: seconds === null ? null : at(seconds),
});

test("statistics count what has ended, and the durations of what completed", () => {
  const counted = countStatistics([ran("RUNNING", null), ran("FAILED", 500), ran("CANCELLED", 1), ...[4, 1, 3, 2].map((s) => ran("COMPLETED", s))]);
  assert.deepEqual(counted.seconds, { p50: 2, p95: 4, mean: 2.5 });
  assert.equal(counted.success_rate, 4 / 6);
  assert.deepEqual(counted.recent.map((one) => one.seconds), [null, 500, 1, 4, 1, 3, 2]);
});

test("a workflow that never ran has no figures", () => {
  const counted = countStatistics([]);
  assert.deepEqual(counted, { recent: [], seconds: { p50: null, p95: null, mean: null }, success_rate: null });
});

test("only what always completed is shown as 100 %", () => {
  assert.deepEqual([1, 0.9999, 0.5, 0, null].map(share), ["100 %", "99.9 %", "50 %", "0 %", "–"]);
});

test("a bar is as high as its execution took, and one that runs stands half as high", () => {
  assert.deepEqual(heightsOf([{ seconds: 10 }, { seconds: 5 }, { seconds: 0 }, { seconds: null }]), [100, 50, 20, 50]);
  assert.deepEqual(heightsOf([{ seconds: 0 }, { seconds: null }]), [100, 50]);
  assert.equal(inWords([{ state: "COMPLETED" }, { state: "FAILED" }, { state: "COMPLETED" }]), "2 completed, 1 failed");
});
