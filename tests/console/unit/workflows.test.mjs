import assert from "node:assert/strict";
import { test } from "node:test";
import { heightsOf, inWords, share } from "../../../src/weft/console/workflow/bars.js";

test("only what always completed is shown as 100 %", () => {
  assert.deepEqual([1, 0.9999, 0.5, 0, null].map(share), ["100 %", "99.9 %", "50 %", "0 %", "–"]);
});

test("a bar is as high as its execution took, and one that runs stands half as high", () => {
  assert.deepEqual(heightsOf([{ seconds: 10 }, { seconds: 5 }, { seconds: 0 }, { seconds: null }]), [100, 50, 20, 50]);
  assert.deepEqual(heightsOf([{ seconds: 0 }, { seconds: null }]), [100, 50]);
  assert.equal(inWords([{ state: "COMPLETED" }, { state: "FAILED" }, { state: "COMPLETED" }]), "2 completed, 1 failed");
});
