import assert from "node:assert/strict";
import { test } from "node:test";
import { diffLines, hunksOf, linesOf, sizeOf } from "../../../src/weft/console/workflow/diff.js";

/** @param {string} left @param {string} right */
const marked = (left, right) => diffLines([...left], [...right]).map(({ kind, text }) => ({ same: " ", removed: "-", added: "+" })[kind] + text);

/** The length of the longest common subsequence, by the table. @param {string[]} a @param {string[]} b */
function commonLength(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = 1; i <= a.length; i++) {
    for (let j = 1; j <= b.length; j++) {
      table[i][j] = a[i - 1] === b[j - 1] ? table[i - 1][j - 1] + 1 : Math.max(table[i - 1][j], table[i][j - 1]);
    }
  }
  return table[a.length][b.length];
}

test("a difference is what was removed and what was added, in place", () => {
  assert.deepEqual(marked("abcd", "abcd"), [" a", " b", " c", " d"]);
  assert.deepEqual(marked("abcd", "axcd"), [" a", "-b", "+x", " c", " d"]);
  assert.deepEqual(marked("", "ab"), ["+a", "+b"]);
  assert.deepEqual(marked("ab", ""), ["-a", "-b"]);
  assert.deepEqual(marked("", ""), []);
  assert.deepEqual(marked("abc", "xyz"), ["-a", "-b", "-c", "+x", "+y", "+z"]);
});

test("every difference gives both texts back, and is as short as any", () => {
  let seed = 7;
  const random = (/** @type {number} */ most) => (seed = (seed * 48271) % 2147483647) % most;
  for (let turn = 0; turn < 400; turn++) {
    const text = () => Array.from({ length: random(14) }, () => "abcd"[random(4)]);
    const [a, b] = [text(), text()];
    const lines = diffLines(a, b);
    const left = lines.filter((line) => line.kind !== "added");
    const right = lines.filter((line) => line.kind !== "removed");
    assert.deepEqual(left.map((line) => line.text), a);
    assert.deepEqual(right.map((line) => line.text), b);
    left.forEach((line, i) => assert.equal(line.left, i + 1));
    right.forEach((line, i) => assert.equal(line.right, i + 1));
    assert.equal(lines.filter((line) => line.kind === "same").length, commonLength(a, b));
  }
});

test("definitions that have little in common are replaced as a whole, in little time", () => {
  const left = ["{", ...Array.from({ length: 40_000 }, (_, i) => `left ${i}`), "}"];
  const right = ["{", ...Array.from({ length: 40_000 }, (_, i) => `right ${i}`), "}"];
  const started = performance.now();
  assert.deepEqual(sizeOf(diffLines(left, right)), { removed: 40_000, added: 40_000 });
  assert.ok(performance.now() - started < 5000);
});

test("what is far from any change is left out", () => {
  const left = Array.from({ length: 30 }, (_, i) => String(i));
  const hunks = hunksOf(diffLines(left, left.map((line) => (line === "10" ? "x" : line))), 2);
  assert.deepEqual(hunks.map((hunk) => ("hidden" in hunk ? hunk.hidden : hunk.lines.length)), [8, 6, 17]);
  assert.deepEqual(hunksOf(diffLines(["a"], ["a"])), [{ hidden: 1 }]);
});

test("a definition is compared as lines of JSON", () => {
  assert.deepEqual(linesOf({ name: "a", nodes: [] }), ["{", '  "name": "a",', '  "nodes": []', "}"]);
});
