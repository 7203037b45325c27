import assert from "node:assert/strict";
import { test } from "node:test";
import { fittingSettings, isOwn } from "../../../src/weft/console/pages/about.js";
import { isUnserved, mixedVersions, sortedWorkers, totalsOf } from "../../../src/weft/console/pages/workers.js";

const worker = (fields) => ({ id: "w", host: "a", pid: 1, version: "1.0", state: "alive", concurrency: 8, running: 2, ...fields });

test("workers that serve come before those that are gone", () => {
  const list = [worker({ state: "lost" }), worker({ pid: 3 }), worker({ state: "draining" }), worker({ pid: 2 })];
  assert.deepEqual(sortedWorkers(list).map((one) => [one.state, one.pid]), [["alive", 2], ["alive", 3], ["draining", 1], ["lost", 1]]);
});

test("only living workers count as slots", () => {
  const list = [worker({}), worker({ running: 3 }), worker({ state: "lost", running: 8 }), worker({ state: "draining" })];
  assert.deepEqual(totalsOf(list), { alive: 2, slots: 16, running: 5 });
});

test("workers of different versions are told, without those that are lost", () => {
  assert.deepEqual(mixedVersions([worker({ version: "1.1" }), worker({})]), ["1.0", "1.1"]);
  assert.deepEqual(mixedVersions([worker({ version: "1.1", state: "lost" }), worker({})]), []);
});

test("a queue is unserved only if something waits in it", () => {
  assert.deepEqual([[0, 1], [0, 0], [1, 1]].map(([workers, depth]) => isUnserved({ workers, depth })), [true, false, false]);
});

test("settings are found by every word in their name, value or meaning", () => {
  const settings = [
    { name: "WEFT_DATABASE_URL", value: "***", source: "environment", default: "", doc: "postgresql://… for a fleet" },
    { name: "WEFT_PYTHON_ALLOW", value: null, source: "default", default: "", doc: "the functions that a node may name" },
  ];
  const found = (text, onlySet = false) => fittingSettings(settings, { text, onlySet }).map((one) => one.name);
  assert.deepEqual(found("fleet url"), ["WEFT_DATABASE_URL"]);
  assert.deepEqual(found(" "), ["WEFT_DATABASE_URL", "WEFT_PYTHON_ALLOW"]);
  assert.deepEqual(found("", true), ["WEFT_DATABASE_URL"]);
  assert.deepEqual(found("fleet allow"), []);
});

test("only paths of this server become links", () => {
  const shown = ["/docs", "//evil.example", "/\\evil.example", "javascript:alert(1)", "https://evil.example/"].map(isOwn);
  assert.deepEqual(shown, [true, false, false, false, false]);
});
