// Bars that are too narrow to be told from each other, as shares of small cells. Nothing is left out: every bar is
// either drawn alone or counted in a cell. Pure.

import { BY_WEIGHT, STATE_COUNT } from "../graph/palette.js";

/** Below so many pixels a bar is no bar. */
export const LEAST_WIDTH = 2;
export const CELL_WIDTH = 2;

/** A state before another shows its colour in a cell that both share. */
const WEIGHT = new Uint8Array(STATE_COUNT);
BY_WEIGHT.forEach((state, at) => (WEIGHT[state] = STATE_COUNT - at));

/**
 * What part of the time and of the lanes is seen.
 * @typedef {{from: number, to: number, width: number, rowHeight: number, top: number, height: number}} Window
 *
 * `wide` are the bars that are drawn alone. Cells are rows of `columns`: how many bars, their time in milliseconds,
 * and the state that matters most.
 * @typedef {{
 *   wide: Int32Array, rows: number, columns: number, rowHeight: number, top: number,
 *   count: Uint32Array, busy: Float32Array, kind: Uint8Array, narrow: number,
 * }} Density
 */

/**
 * Return which bars are drawn alone, and cells for the others.
 * @param {import("./lanes.js").Bars} bars
 * @param {import("./lanes.js").Lanes} lanes
 * @param {Window} window
 * @returns {Density}
 */
export function densityOf(bars, lanes, window) {
  const { from, to, width, rowHeight, top, height } = window;
  const scale = width / Math.max(1e-9, to - from);
  // Lanes thinner than two pixels share a row.
  const tall = Math.max(rowHeight, 2);
  const firstLane = Math.max(0, Math.floor(top / rowHeight));
  const lastLane = Math.min(lanes.count, Math.ceil((top + height) / rowHeight));
  const rowOf = (/** @type {number} */ lane) => Math.floor((lane * rowHeight - firstLane * rowHeight) / tall + 1e-6);
  const rows = lastLane > firstLane ? rowOf(lastLane - 1) + 1 : 0;
  const columns = Math.ceil(width / CELL_WIDTH);
  const count = new Uint32Array(rows * columns);
  const busy = new Float32Array(rows * columns);
  const kind = new Uint8Array(rows * columns);
  const wide = [];
  let narrow = 0;
  for (let lane = firstLane; lane < lastLane; lane++) {
    const row = rowOf(lane) * columns;
    for (let at = lanes.start[lane]; at < lanes.start[lane + 1]; at++) {
      const bar = lanes.bars[at];
      if (bars.finished[bar] < from || bars.queued[bar] > to) continue;
      const begin = bars.started[bar];
      const length = bars.finished[bar] - begin;
      const waits = begin - bars.queued[bar];
      if (length * scale >= LEAST_WIDTH || waits * scale >= LEAST_WIDTH) {
        wide.push(bar);
        continue;
      }
      narrow++;
      const column = Math.floor(((begin - from) * scale) / CELL_WIDTH);
      const cell = row + Math.min(columns - 1, Math.max(0, column));
      if (count[cell]++ === 0 || WEIGHT[bars.kind[bar]] > WEIGHT[kind[cell]]) kind[cell] = bars.kind[bar];
      busy[cell] += length;
    }
  }
  return { wide: Int32Array.from(wide), rows, columns, rowHeight: tall, top: firstLane * rowHeight - top, count, busy, kind, narrow };
}

/**
 * Return how many attempts ran at once in each column of a picture of the whole time: STATE_COUNT shares a column,
 * weighted by the part of the column's time. Nodes that wait do not run.
 * @param {import("./lanes.js").Bars} bars
 * @param {number} columns
 */
export function loadOf(bars, columns) {
  const load = new Float64Array((columns + 1) * STATE_COUNT);
  const slope = new Float64Array((columns + 1) * STATE_COUNT);
  const scale = columns / Math.max(1e-9, bars.last - bars.first);
  const add = (/** @type {number} */ at, /** @type {number} */ kind, /** @type {number} */ sign) => {
    const column = Math.min(columns - 1, Math.max(0, Math.floor(at)));
    const rest = Math.min(1, Math.max(0, column + 1 - at));
    load[column * STATE_COUNT + kind] += sign * rest;
    slope[(column + 1) * STATE_COUNT + kind] += sign;
  };
  for (let bar = 0; bar < bars.count; bar++) {
    if (bars.waits[bar] === 1) continue;
    add((bars.started[bar] - bars.first) * scale, bars.kind[bar], 1);
    add((bars.finished[bar] - bars.first) * scale, bars.kind[bar], -1);
  }
  for (let kind = 0; kind < STATE_COUNT; kind++) {
    let running = 0;
    for (let column = 0; column < columns; column++) {
      running += slope[column * STATE_COUNT + kind];
      load[column * STATE_COUNT + kind] += running;
    }
  }
  return load.subarray(0, columns * STATE_COUNT);
}
