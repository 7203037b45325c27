// The difference of two definitions, line by line: the shortest edit script by Myers' algorithm, within a bound.

/** @typedef {{kind: "same" | "removed" | "added", text: string, left: number | null, right: number | null}} Line
 *   `left`, `right`: the number of the line in either text, from 1 */
/** @typedef {{lines: Line[]} | {hidden: number}} Hunk `hidden`: so many lines are the same on both sides */

// The work and the memory grow with the square of the lines that differ.
const MOST_EDITS = 1500;

/** Return a definition as lines of JSON. @param {any} definition */
export function linesOf(definition) {
  return JSON.stringify(definition ?? null, null, 2).split("\n");
}

/**
 * Return how one text becomes the other. What differs in too much is removed and added as a whole.
 * @param {string[]} left @param {string[]} right @returns {Line[]}
 */
export function diffLines(left, right) {
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left[left.length - 1 - end] === right[right.length - 1 - end]) end++;
  const a = left.slice(start, left.length - end);
  const b = right.slice(start, right.length - end);
  /** @type {Line[]} */
  const lines = [];
  const same = (/** @type {number} */ i, /** @type {number} */ j) => lines.push({ kind: "same", text: left[i], left: i + 1, right: j + 1 });
  for (let i = 0; i < start; i++) same(i, i);
  let i = 0;
  let j = 0;
  for (const [k, l] of [...(pairsOf(a, b) ?? []), /** @type {[number, number]} */ ([a.length, b.length])]) {
    for (; i < k; i++) lines.push({ kind: "removed", text: a[i], left: start + i + 1, right: null });
    for (; j < l; j++) lines.push({ kind: "added", text: b[j], left: null, right: start + j + 1 });
    if (i < a.length && j < b.length) same(start + i++, start + j++);
  }
  for (let n = end; n > 0; n--) same(left.length - n, right.length - n);
  return lines;
}

/**
 * Return the pairs of lines that stay, in their order; null: more than `MOST_EDITS` lines differ.
 * @param {string[]} a @param {string[]} b @returns {[number, number][] | null}
 */
function pairsOf(a, b) {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  // furthest[k + most + 1]: how far into `a` so many edits lead on the diagonal k, where k = place in a − place in b.
  const furthest = new Int32Array(2 * most + 3);
  /** @type {Int32Array[]} */
  const trace = [];
  for (let edits = 0; edits <= most; edits++) {
    trace.push(furthest.slice(most - edits, most + edits + 3));
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && furthest[k + most] < furthest[k + most + 2]);
      let x = down ? furthest[k + most + 2] : furthest[k + most] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      furthest[k + most + 1] = x;
      if (x >= a.length && x - k >= b.length) return walkBack(a, b, trace);
    }
  }
  return null;
}

/** @param {string[]} a @param {string[]} b @param {Int32Array[]} trace what was furthest before each number of edits */
function walkBack(a, b, trace) {
  /** @type {[number, number][]} */
  const pairs = [];
  let x = a.length;
  let y = b.length;
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const before = trace[edits];
    const k = x - y;
    const at = (/** @type {number} */ diagonal) => before[diagonal + edits + 1];
    const down = k === -edits || (k !== edits && at(k - 1) < at(k + 1));
    const fromX = edits === 0 ? 0 : down ? at(k + 1) : at(k - 1);
    const fromY = edits === 0 ? 0 : fromX - (down ? k + 1 : k - 1);
    while (x > fromX && y > fromY && a[x - 1] === b[y - 1]) pairs.push([--x, --y]);
    x = fromX;
    y = fromY;
  }
  return pairs.reverse();
}

/**
 * Return the lines that differ with some around them, and how many are left out between.
 * @param {Line[]} lines @param {number} [around] @returns {Hunk[]}
 */
export function hunksOf(lines, around = 3) {
  const shown = new Uint8Array(lines.length);
  lines.forEach((line, i) => {
    if (line.kind !== "same") shown.fill(1, Math.max(0, i - around), i + around + 1);
  });
  /** @type {Hunk[]} */
  const hunks = [];
  for (let i = 0; i < lines.length; ) {
    let until = i;
    while (until < lines.length && shown[until] === shown[i]) until++;
    hunks.push(shown[i] ? { lines: lines.slice(i, until) } : { hidden: until - i });
    i = until;
  }
  return hunks;
}

/** Return how many lines were removed and added. @param {Line[]} lines */
export function sizeOf(lines) {
  const count = (/** @type {string} */ kind) => lines.filter((line) => line.kind === kind).length;
  return { removed: count("removed"), added: count("added") };
}
