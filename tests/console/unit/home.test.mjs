import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, test } from "node:test";
import { firstCommands } from "../../../src/weft/console/home/first_steps.js";
import { axisEnd, barsOf, shortCount } from "../../../src/weft/console/home/hours.js";
import { hoursOf, isEmpty, loadOverview, totalOf } from "../../../src/weft/console/home/overview.js";

const NOW = Date.parse("2026-01-02T12:30:00Z");
const execution = (created_at, state = "RUNNING", finished_at = null) => ({ id: created_at, state, created_at, finished_at });

test("each hour has what started and what ended in it", () => {
  const hours = hoursOf([
    execution("2026-01-02T12:10:00Z"),
    execution("2026-01-02T11:59:59Z", "FAILED", "2026-01-02T12:00:00Z"),
    execution("2026-01-01T13:00:00Z", "COMPLETED", "2026-01-01T13:00:01Z"),
    execution("2026-01-01T12:59:59Z", "COMPLETED", "2026-01-01T12:59:59Z"),
  ], NOW);
  assert.equal(hours.length, 24);
  assert.deepEqual(hours[23], { from: "2026-01-02T12:00:00.000Z", COMPLETED: 0, FAILED: 1, CANCELLED: 0, started: 1 });
  assert.deepEqual(hours[22].started, 1);
  assert.deepEqual([hours[0].from, hours[0].COMPLETED], ["2026-01-01T13:00:00.000Z", 1]);
  assert.deepEqual(totalOf(hours), { COMPLETED: 1, FAILED: 1, CANCELLED: 0, started: 3 });
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
  const nothing = { executions: { RUNNING: 0 }, hours: hoursOf([], NOW), dead_letters: 0 };
  assert.equal(isEmpty(nothing), true);
  assert.equal(isEmpty({ ...nothing, executions: { COMPLETED: 1 } }), false);
  assert.equal(isEmpty({ ...nothing, hours: hoursOf([execution("2026-01-02T12:10:00Z")], NOW) }), false);
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

const { fetch } = globalThis;
afterEach(() => {
  globalThis.fetch = fetch;
});

test("a server without an overview is asked for it once, and its lists are counted", async () => {
  /** @type {string[]} */
  const asked = [];
  const running = execution("2026-01-02T12:10:00Z");
  const lists = {
    executions: [running],
    "dead-letters": [{ id: "l", execution: "e", workflow: "order", node: "fetch", error: { code: "timeout" }, created_at: "2026-01-02T12:00:00Z" }],
    workers: [{ state: "alive", concurrency: 8, running: 3 }],
    queues: [{ name: "echo", depth: 2, oldest_age_seconds: 1 }],
  };
  globalThis.fetch = async (address) => {
    const call = new URL(String(address)).pathname.split("/v1/")[1];
    asked.push(call);
    return call === "overview" ? new Response('{"code": "not_found"}', { status: 404 }) : new Response(JSON.stringify({ items: lists[call], next_cursor: null }));
  };
  const overview = await loadOverview();
  await loadOverview();
  assert.deepEqual(overview.executions, { RUNNING: 1 });
  assert.deepEqual([overview.dead_letters, overview.failures[0].node, overview.workers, overview.isPartial], [1, "fetch", { alive: 1, slots: 8, running: 3 }, false]);
  assert.equal(asked.filter((call) => call === "overview").length, 1);
});
