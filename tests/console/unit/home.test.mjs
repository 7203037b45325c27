import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { firstCommands } from "../../../src/weft/console/home/first_steps.js";
import { axisEnd, barsOf, shortCount } from "../../../src/weft/console/home/hours.js";
import { isEmpty, totalOf } from "../../../src/weft/console/home/overview.js";
import { pointsOf, ratesOf, sampleOf } from "../../../src/weft/console/home/trend.js";


test("the sums of the hours are those of the day", () => {
  const hour = { from: "", COMPLETED: 1, FAILED: 0, CANCELLED: 2, started: 3 };
  assert.deepEqual(totalOf([hour, { ...hour, FAILED: 5 }]), { COMPLETED: 2, FAILED: 5, CANCELLED: 4, started: 6 });
});

test("bars are stacked to the scale of the axis, and what is not nothing is seen", () => {
  const hours = [{ from: "", COMPLETED: 60, FAILED: 20, CANCELLED: 0, started: 100 }, { from: "", COMPLETED: 0, FAILED: 1, CANCELLED: 0, started: 0 }];
  const { end, step, bars } = barsOf(hours, { width: 100, height: 100 });
  assert.deepEqual([end, step], [100, 50]);
  assert.deepEqual(bars.map((bar) => bar.parts), [[60, 0, 20], [0, 0, 2]]);
  assert.deepEqual(bars.map((bar) => bar.started), [100, 0]);
  assert.ok(bars[0].x + bars[0].width < bars[1].x);
});

test("an axis ends at a round number that is no smaller", () => {
  assert.deepEqual([0, 4, 5, 9, 10, 11, 41, 99, 2001].map(axisEnd), [4, 4, 5, 10, 10, 20, 50, 100, 4000]);
  assert.deepEqual([0, 2.5, 950, 1500, 20_000, 3e6].map(shortCount), ["0", "2.5", "950", "1.5k", "20k", "3M"]);
});

test("only a server that has nothing shows the first commands", () => {
  const quiet = { from: "", COMPLETED: 0, FAILED: 0, CANCELLED: 0, started: 0 };
  const nothing = { executions: { RUNNING: 0 }, hours: [quiet], dead_letters: 0 };
  assert.equal(isEmpty(nothing), true);
  assert.equal(isEmpty({ ...nothing, executions: { COMPLETED: 1 } }), false);
  assert.equal(isEmpty({ ...nothing, hours: [quiet, { ...quiet, started: 1 }] }), false);
});

test("the first commands are what a shell can run", () => {
  const folder = mkdtempSync(join(tmpdir(), "first-"));
  const commands = firstCommands({ root: "http://127.0.0.1:8791/", keys: true });
  const said = execFileSync("sh", ["-c", `weft() { echo "$WEFT_URL" "$@"; }; ${commands}`], { cwd: folder }).toString();
  assert.equal(said, "http://127.0.0.1:8791 deploy hello.yaml\nhttp://127.0.0.1:8791 start hello --input name=Ada --wait\n");
  const lines = readFileSync(join(folder, "hello.yaml"), "utf8").split("\n");
  assert.deepEqual(lines.slice(0, 2), ["name: hello", "nodes:"]);
  assert.equal(lines.filter((line) => line.startsWith("  - {id: ")).length, 3);
  assert.ok(!firstCommands({ root: "http://127.0.0.1:8700/", keys: false }).includes("export"));
});

test("a trend has what ended between two looks, and the longest wait of any queue", () => {
  const hour = { from: "", COMPLETED: 3, FAILED: 1, CANCELLED: 0, started: 9 };
  const queues = [{ name: "a", depth: 0, oldest_age_seconds: null }, { name: "b", depth: 2, oldest_age_seconds: 7.5 }];
  assert.deepEqual(sampleOf({ hours: [hour, hour], queues }, 1000), { at: 1000, ended: 8, waited: 7.5 });
  assert.equal(sampleOf({ hours: [], queues: [] }, 0).waited, 0);
  const all = [0, 30, 20].map((ended, i) => ({ at: i * 30_000, ended, waited: i }));
  assert.deepEqual(ratesOf(all), [60, 0]);
  assert.equal(pointsOf(all, ratesOf(all)), "50.00,1.00 100.00,19.00");
  assert.equal(pointsOf([], []), "");
});
