// Attempts as bars in lanes: a lane for each node, or as many for a worker as attempts ran there at once. Pure.

import { CANCELLED, COMPLETED, FAILED, QUEUED, RETRY, RUNNING, WAITING } from "../graph/palette.js";

/**
 * Bar i is attempt i of the answer: it waits from `queued` to `started` and runs until `finished`, in milliseconds;
 * what has not happened yet ends now. `kind` is the state whose colour it has: an attempt that was lost with its
 * worker has that of a retry. Bars that run on the critical path have 1 in `critical`, and those of nodes that wait for
 * a time or an answer 1 in `waits`: nothing runs meanwhile.
 * @typedef {{
 *   count: number, node: Int32Array, number: Int32Array, worker: Int32Array, queued: Float64Array,
 *   started: Float64Array, finished: Float64Array, kind: Uint8Array, lost: Uint8Array, critical: Uint8Array,
 *   waits: Uint8Array,
 *   path: Int32Array, first: number, last: number,
 * }} Bars
 *
 * `bars` lists the bars of each lane by their begin. `node` or `worker` is -1 where a lane is not one's own; `worker` is
 * -2 where no worker is needed.
 * @typedef {{
 *   count: number, start: Int32Array, bars: Int32Array, of: Int32Array, node: Int32Array, worker: Int32Array,
 * }} Lanes
 */

/** @type {Record<string, number>} */
const KINDS = { C: COMPLETED, F: FAILED, L: RETRY, P: WAITING, X: CANCELLED };

/**
 * Return the bars of a timeline as the API answers it.
 * @param {any} timeline
 * @param {{nodes: string[], handlers?: string[], handler?: number[]}} topology
 * @returns {Bars}
 */
export function barsOf(timeline, { nodes, handlers = [], handler = [] }) {
  const { attempts } = timeline;
  const count = attempts.node.length;
  const now = nowOf(timeline);
  const queued = new Float64Array(count);
  const started = new Float64Array(count);
  const finished = new Float64Array(count);
  const kind = new Uint8Array(count);
  const lost = new Uint8Array(count);
  const waits = new Uint8Array(count);
  const number = Int32Array.from(attempts.number);
  const node = Int32Array.from(attempts.node);
  let first = 0;
  let last = 0;
  for (let i = 0; i < count; i++) {
    const begin = attempts.started[i];
    const end = attempts.finished[i] ?? now;
    started[i] = begin ?? end;
    queued[i] = Math.min(attempts.queued[i] ?? started[i], started[i]);
    finished[i] = Math.max(end, started[i]);
    const outcome = attempts.outcome[i];
    waits[i] = handlers[handler[node[i]]] === "wait" ? 1 : 0;
    kind[i] = outcome === null ? (begin === null ? QUEUED : waits[i] ? WAITING : RUNNING) : (KINDS[outcome] ?? RUNNING);
    lost[i] = outcome === "L" ? 1 : 0;
    first = Math.min(first, queued[i]);
    last = Math.max(last, finished[i]);
  }
  const worker = Int32Array.from(attempts.worker, (/** @type {number | null} */ one) => one ?? -1);
  const path = pathOf(timeline.critical_path ?? [], nodes, node, number);
  const critical = new Uint8Array(count);
  for (const bar of path) critical[bar] = 1;
  const expected = expectedOf(timeline);
  if (expected !== null) last = Math.max(last, expected.high);
  return { count, node, number, worker, queued, started, finished, kind, lost, critical, waits, path, first, last: Math.max(last, 1) };
}

/** Return the time zero of a timeline. @param {any} timeline */
function zeroOf(timeline) {
  return Date.parse(timeline.started_at ?? timeline.created_at);
}

/** Return the server's time in milliseconds of the timeline, or the end of what has finished. @param {any} timeline */
export function nowOf(timeline) {
  const at = Date.parse(timeline.finished_at ?? timeline.now) - zeroOf(timeline);
  return Number.isFinite(at) ? Math.max(0, at) : 0;
}

/** Return when the execution is expected to end, with its spread. @param {any} timeline */
export function expectedOf(timeline) {
  const { expected } = timeline;
  if (!expected) return null;
  const zero = zeroOf(timeline);
  const [at, low, high] = [expected.finish_at, expected.low_at, expected.high_at].map((one) => Date.parse(one) - zero);
  return Number.isFinite(at) ? { at, low: Number.isFinite(low) ? low : at, high: Number.isFinite(high) ? high : at } : null;
}

/**
 * @param {{node: string, attempt: number}[]} steps
 * @param {string[]} nodes
 * @param {Int32Array} node
 * @param {Int32Array} number
 */
function pathOf(steps, nodes, node, number) {
  const wanted = new Map(steps.map((step, at) => [`${step.attempt} ${step.node}`, at]));
  const found = new Int32Array(steps.length).fill(-1);
  for (let bar = 0; bar < node.length && wanted.size > 0; bar++) {
    const at = wanted.get(`${number[bar]} ${nodes[node[bar]]}`);
    if (at !== undefined) found[at] = bar;
  }
  return found.filter((bar) => bar >= 0);
}

/**
 * Return the lanes of bars. Lanes of nodes are ordered by when their first attempt was queued.
 * @param {Bars} bars
 * @param {"node" | "worker"} by
 * @param {boolean} criticalOnly only lanes of nodes on the critical path
 * @returns {Lanes}
 */
export function lanesOf(bars, by, criticalOnly = false) {
  const order = Int32Array.from({ length: bars.count }, (_, i) => i);
  if (by === "worker") {
    order.sort((a, b) => bars.started[a] - bars.started[b] || a - b);
    return gathered(bars, order, workerLanes(bars, order));
  }
  order.sort((a, b) => bars.queued[a] - bars.queued[b] || bars.node[a] - bars.node[b] || a - b);
  const wanted = criticalOnly ? new Set(Array.from(bars.path, (bar) => bars.node[bar])) : null;
  /** @type {Map<number, number>} */
  const laneOf = new Map();
  const of = new Int32Array(bars.count).fill(-1);
  const node = [];
  for (const bar of order) {
    if (wanted !== null && !wanted.has(bars.node[bar])) continue;
    let lane = laneOf.get(bars.node[bar]);
    if (lane === undefined) {
      lane = node.length;
      laneOf.set(bars.node[bar], lane);
      node.push(bars.node[bar]);
    }
    of[bar] = lane;
  }
  return gathered(bars, order, { of, node, worker: node.map(() => -1) });
}

/**
 * Put the attempts of each worker into as few lanes as there were attempts at once, and so those that need no worker
 * (sleeps and waits). Attempts that no worker has taken share one lane at the end.
 * @param {Bars} bars
 * @param {Int32Array} order by begin
 */
function workerLanes(bars, order) {
  let workers = 0;
  for (const one of bars.worker) workers = Math.max(workers, one + 1);
  // Those without a worker come behind the last one.
  const rowOf = (/** @type {number} */ bar) => (bars.worker[bar] >= 0 ? bars.worker[bar] : bars.kind[bar] === QUEUED ? -1 : workers);
  /** @type {number[][]} the end of the last bar in each lane of each worker */
  const ends = Array.from({ length: workers + 1 }, () => []);
  const slot = new Int32Array(bars.count);
  for (const bar of order) {
    const row = rowOf(bar);
    if (row < 0) continue;
    const own = ends[row];
    let at = own.findIndex((end) => end <= bars.started[bar]);
    if (at < 0) at = own.push(0) - 1;
    own[at] = bars.finished[bar];
    slot[bar] = at;
  }
  const offset = new Int32Array(workers + 2);
  for (let i = 0; i <= workers; i++) offset[i + 1] = offset[i] + ends[i].length;
  const worker = [];
  for (let i = 0; i <= workers; i++) for (let at = 0; at < ends[i].length; at++) worker.push(i < workers ? i : -2);
  const of = new Int32Array(bars.count);
  let alone = false;
  for (let bar = 0; bar < bars.count; bar++) {
    const row = rowOf(bar);
    alone ||= row < 0;
    of[bar] = row < 0 ? offset[workers + 1] : offset[row] + slot[bar];
  }
  if (alone) worker.push(-1);
  return { of, node: worker.map(() => -1), worker };
}

/**
 * @param {Bars} bars
 * @param {Int32Array} order
 * @param {{of: Int32Array, node: number[], worker: number[]}} lanes
 * @returns {Lanes}
 */
function gathered(bars, order, { of, node, worker }) {
  const count = node.length;
  const start = new Int32Array(count + 1);
  let shown = 0;
  for (let bar = 0; bar < bars.count; bar++) {
    if (of[bar] < 0) continue;
    start[of[bar] + 1]++;
    shown++;
  }
  for (let lane = 0; lane < count; lane++) start[lane + 1] += start[lane];
  const next = start.slice(0, count);
  const list = new Int32Array(shown);
  for (const bar of order) if (of[bar] >= 0) list[next[of[bar]]++] = bar;
  return { count, start, bars: list, of, node: Int32Array.from(node), worker: Int32Array.from(worker) };
}
