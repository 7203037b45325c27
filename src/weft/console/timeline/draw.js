// Draws lanes, axis and overview of a timeline on canvases. Called once a frame at most.

import { fitted } from "../graph/cards.js";
import { BY_WEIGHT, COMPLETED, FAILED, QUEUED, RUNNING, STATE_COUNT, WAITING } from "../graph/palette.js";
import { drawSign } from "../graph/signs.js";
import { CELL_WIDTH, LEAST_WIDTH, densityOf, loadOf } from "./density.js";
import { duration, ticksOf } from "./ticks.js";

export const AXIS = 24;
const SIGN_WIDTH = 18;
const LABEL_ROW = 11;

/**
 * `left` is the width of the column of names.
 * @typedef {{
 *   ctx: CanvasRenderingContext2D, palette: import("../graph/palette.js").Palette, texts: Map<string, string>,
 *   ratio: number, width: number, height: number, left: number, from: number, to: number, rowHeight: number, top: number,
 *   bars: import("./lanes.js").Bars, lanes: import("./lanes.js").Lanes, labels: (lane: number) => string,
 *   selected: number | null, hovered: number, now: number | null,
 *   expected: {at: number, low: number, high: number} | null, brush: [number, number] | null, hatches: ReturnType<typeof hatchesOf>,
 * }} Sheet
 */

/** Return the place of a time on the screen. @param {Sheet} sheet @param {number} at */
export function xOf({ left, width, from, to }, at) {
  return left + ((at - from) / Math.max(1e-9, to - from)) * (width - left);
}

/** @param {Sheet} sheet */
export function drawSheet(sheet) {
  const { ctx, ratio, width, height, left, palette } = sheet;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  drawStripes(sheet);
  drawAxis(sheet);
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, AXIS, width - left, height - AXIS);
  ctx.clip();
  drawExpected(sheet);
  drawBars(sheet);
  drawPath(sheet);
  drawNow(sheet);
  ctx.restore();
  drawLabels(sheet);
  ctx.fillStyle = palette.line;
  ctx.fillRect(left - 1, 0, 1, height);
  ctx.fillRect(0, AXIS - 1, width, 1);
  if (sheet.brush !== null) drawBrush(sheet, sheet.brush);
}

/** @param {Sheet} sheet */
function drawStripes({ ctx, palette, width, height, rowHeight, top, lanes, selected, hovered, bars }) {
  const first = Math.max(0, Math.floor(top / rowHeight));
  const last = Math.min(lanes.count, Math.ceil((top + height) / rowHeight));
  const chosen = selected === null ? -1 : lanes.node.indexOf(selected);
  for (let lane = first; lane < last; lane++) {
    const y = AXIS + lane * rowHeight - top;
    const isHovered = hovered >= 0 && lanes.of[hovered] === lane;
    const isChosen = lane === chosen || (selected !== null && chosen < 0 && lanesHas(bars, lanes, lane, selected));
    if (isChosen || isHovered) {
      ctx.globalAlpha = isChosen ? 0.22 : 0.1;
      ctx.fillStyle = palette.accent;
      ctx.fillRect(0, y, width, Math.max(2, rowHeight));
      ctx.globalAlpha = 1;
    } else if (rowHeight >= 12 && lane % 2 === 1) {
      ctx.fillStyle = palette.raised;
      ctx.fillRect(0, y, width, rowHeight);
    }
  }
}

/** @param {import("./lanes.js").Bars} bars @param {import("./lanes.js").Lanes} lanes @param {number} lane @param {number} node */
function lanesHas(bars, lanes, lane, node) {
  if (lanes.node[lane] >= 0) return false;
  for (let at = lanes.start[lane]; at < lanes.start[lane + 1]; at++) if (bars.node[lanes.bars[at]] === node) return true;
  return false;
}

/** @param {Sheet} sheet */
function drawAxis(sheet) {
  const { ctx, palette, from, to, width, height, left } = sheet;
  ctx.font = `11px ${palette.font}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  for (const at of ticksOf(from, to, (width - left) / 90)) {
    const x = Math.round(xOf(sheet, at));
    if (x < left) continue;
    ctx.fillStyle = palette.line;
    ctx.fillRect(x, AXIS - 6, 1, height);
    ctx.fillStyle = palette.muted;
    if (x + 50 < width) ctx.fillText(duration(at), x + 4, AXIS / 2);
  }
}

/** @param {Sheet} sheet */
function drawBars(sheet) {
  const { ctx, palette, bars, lanes, rowHeight, top, from, to, width, left } = sheet;
  const wide = width - left;
  const height = sheet.height - AXIS;
  const density = densityOf(bars, lanes, { from, to, width: wide, rowHeight, top, height });
  drawDensity(sheet, density);
  const inset = rowHeight >= 14 ? 4 : rowHeight >= 8 ? 2 : rowHeight >= 4 ? 0.5 : 0;
  const high = Math.max(1, rowHeight - 2 * inset);
  for (const bar of density.wide) {
    const y = AXIS + lanes.of[bar] * rowHeight - top + inset;
    const begin = Math.max(left - 4, xOf(sheet, bars.started[bar]));
    const end = Math.min(width + 4, xOf(sheet, bars.finished[bar]));
    // On lanes of workers a wait would lie over what ran meanwhile.
    if (lanes.node[lanes.of[bar]] >= 0 || bars.kind[bar] === QUEUED) drawWait(sheet, bar, y, high);
    if (bars.kind[bar] === QUEUED) continue;
    const across = Math.max(LEAST_WIDTH, end - begin);
    // A node that waits does not run: hatched, with its outcome as the frame and the sign.
    const waits = bars.waits[bar] === 1 && rowHeight >= 6;
    ctx.fillStyle = (waits && sheet.hatches.waiting) || palette.states[bars.kind[bar]];
    if (rowHeight >= 8 && across > 6) {
      ctx.beginPath();
      ctx.roundRect(begin, y, across, high, 3);
      ctx.fill();
    } else ctx.fillRect(begin, y, across, high);
    if (bars.critical[bar] === 1 && rowHeight >= 4) outline(sheet, palette.text, begin, y, across, high);
    else if (waits) outline(sheet, palette.states[bars.kind[bar]], begin, y, across, high);
    if (rowHeight >= 14 && across >= SIGN_WIDTH) drawInside(sheet, bar, Math.max(begin, left), y, end, high);
  }
}

/** @param {Sheet} sheet @param {string} colour @param {number} x @param {number} y @param {number} w @param {number} h */
function outline({ ctx }, colour, x, y, w, h) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2;
  ctx.beginPath();
  ctx.roundRect(x, y, Math.max(2, w), h, 3);
  ctx.stroke();
}

/** @param {Sheet} sheet @param {number} bar @param {number} y @param {number} high */
function drawWait(sheet, bar, y, high) {
  const { ctx, palette, bars, left, width, hatches } = sheet;
  const begin = Math.max(left - 4, xOf(sheet, bars.queued[bar]));
  const end = Math.min(width + 4, xOf(sheet, bars.started[bar]));
  if (end - begin < LEAST_WIDTH) return;
  ctx.fillStyle = (sheet.rowHeight >= 6 && hatches.queued) || palette.states[QUEUED];
  ctx.globalAlpha = sheet.rowHeight >= 6 ? 0.9 : 0.35;
  ctx.fillRect(begin, y + high * 0.15, end - begin, Math.max(1, high * 0.7));
  ctx.globalAlpha = 1;
}

/** Draw the sign of a bar, and its length or its node where there is room. @param {Sheet} sheet @param {number} bar @param {number} x @param {number} y @param {number} end @param {number} high */
function drawInside(sheet, bar, x, y, end, high) {
  const { ctx, palette, bars, lanes, width } = sheet;
  const ink = bars.waits[bar] === 1 ? palette.text : palette.inks[bars.kind[bar]];
  drawSign(ctx, bars.kind[bar], x + 10, y + high / 2, Math.min(5, high / 2.6), ink);
  const room = Math.min(end, width) - x - SIGN_WIDTH - 6;
  if (room < 34) return;
  const font = `11px ${palette.font}`;
  const ran = duration(bars.finished[bar] - bars.started[bar]);
  const again = bars.number[bar] > 1 ? `attempt ${bars.number[bar]} · ` : "";
  const name = lanes.node[lanes.of[bar]] >= 0 ? again : `${sheet.labels(-1 - bars.node[bar])} · `;
  const text = fitted(sheet, `${name}${ran}`, room, font, 0);
  ctx.font = font;
  ctx.fillStyle = ink;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillText(text, x + SIGN_WIDTH, y + high / 2 + 0.5);
}

/** @param {Sheet} sheet @param {import("./density.js").Density} density */
function drawDensity({ ctx, palette, left, from, to, width, lanes, rowHeight }, density) {
  if (density.narrow === 0) return;
  const { rows, columns, count, busy, kind, top } = density;
  const share = ((to - from) / (width - left)) * CELL_WIDTH * Math.max(1, density.rowHeight / rowHeight);
  const high = Math.max(1, density.rowHeight >= 8 ? density.rowHeight - 4 : density.rowHeight);
  const inset = density.rowHeight >= 8 ? 2 : 0;
  for (let row = 0; row < rows; row++) {
    const y = AXIS + top + row * density.rowHeight + inset;
    for (let column = 0; column < columns; column++) {
      const cell = row * columns + column;
      if (count[cell] === 0) continue;
      ctx.globalAlpha = kind[cell] === FAILED ? 1 : Math.min(1, 0.45 + 0.55 * (busy[cell] / share));
      ctx.fillStyle = palette.states[kind[cell]];
      ctx.fillRect(left + column * CELL_WIDTH, y, CELL_WIDTH, high);
    }
  }
  ctx.globalAlpha = 1;
}

/** Join the bars of the critical path by lines. @param {Sheet} sheet */
function drawPath(sheet) {
  const { ctx, palette, bars, lanes, rowHeight, top } = sheet;
  ctx.strokeStyle = palette.text;
  ctx.lineWidth = rowHeight >= 4 ? 1.5 : 1;
  ctx.beginPath();
  let before = -1;
  for (const bar of bars.path) {
    const lane = lanes.of[bar];
    if (lane < 0) continue;
    const y = AXIS + (lane + 0.5) * rowHeight - top;
    if (before >= 0) {
      const fromY = AXIS + (lanes.of[before] + 0.5) * rowHeight - top;
      const x = xOf(sheet, bars.finished[before]);
      ctx.moveTo(x, fromY);
      ctx.lineTo(x, y);
      ctx.lineTo(Math.max(x, xOf(sheet, bars.started[bar])), y);
    }
    before = bar;
  }
  ctx.globalAlpha = 0.8;
  ctx.stroke();
  ctx.globalAlpha = 1;
}

/** @param {Sheet} sheet */
function drawNow(sheet) {
  const { ctx, palette, now, height, width } = sheet;
  if (now === null) return;
  const x = xOf(sheet, now);
  if (x > width) return;
  ctx.fillStyle = palette.states[RUNNING];
  ctx.fillRect(x - 0.5, AXIS, 1.5, height);
}

/** @param {Sheet} sheet */
function drawExpected(sheet) {
  const { ctx, palette, expected, height } = sheet;
  if (expected === null) return;
  const [low, at, high] = [expected.low, expected.at, expected.high].map((one) => xOf(sheet, one));
  ctx.fillStyle = palette.accent;
  ctx.globalAlpha = 0.12;
  ctx.fillRect(low, AXIS, Math.max(1, high - low), height);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = palette.accent;
  ctx.lineWidth = 1.5;
  ctx.setLineDash([5, 4]);
  ctx.beginPath();
  ctx.moveTo(at, AXIS);
  ctx.lineTo(at, height);
  ctx.stroke();
  ctx.setLineDash([]);
}

/** @param {Sheet} sheet */
function drawLabels(sheet) {
  const { ctx, palette, lanes, bars, rowHeight, top, height, left } = sheet;
  if (rowHeight < LABEL_ROW) return;
  const first = Math.max(0, Math.floor(top / rowHeight));
  const last = Math.min(lanes.count, Math.ceil((top + height) / rowHeight));
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, left - 4, height);
  ctx.clip();
  for (let lane = first; lane < last; lane++) {
    // Lanes of one worker have one name.
    if (lanes.node[lane] < 0 && lane > first && lanes.worker[lane] === lanes.worker[lane - 1]) continue;
    const critical = lanes.node[lane] >= 0 && bars.critical[lanes.bars[lanes.start[lane + 1] - 1]] === 1;
    const font = `${critical ? "600 " : ""}12px ${palette.font}`;
    const text = fitted(sheet, sheet.labels(lane), left - (critical ? 32 : 16), font);
    ctx.font = font;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillStyle = palette.text;
    const y = AXIS + (lane + 0.5) * rowHeight - top;
    ctx.fillText(`${critical ? "◆ " : ""}${text}`, 8, y);
  }
  ctx.restore();
}

/** @param {Sheet} sheet @param {[number, number]} brush in pixels */
function drawBrush({ ctx, palette, height }, [a, b]) {
  ctx.fillStyle = palette.accent;
  ctx.globalAlpha = 0.2;
  ctx.fillRect(Math.min(a, b), 0, Math.abs(b - a), height);
  ctx.globalAlpha = 1;
  ctx.fillRect(Math.min(a, b), 0, 1, height);
  ctx.fillRect(Math.max(a, b), 0, 1, height);
}

/**
 * Draw how many attempts ran at once over the whole time, and a frame around what is seen.
 * @param {Sheet} sheet
 * @param {CanvasRenderingContext2D} ctx
 * @param {number} height
 */
export function drawOverview(sheet, ctx, height) {
  const { ratio, width, left, palette, bars, from, to } = sheet;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  const columns = Math.max(1, Math.floor((width - left) / CELL_WIDTH));
  const load = loadOf(bars, columns);
  let most = 1;
  for (let column = 0; column < columns; column++) {
    let sum = 0;
    for (let kind = 0; kind < STATE_COUNT; kind++) if (kind !== QUEUED) sum += load[column * STATE_COUNT + kind];
    most = Math.max(most, sum);
  }
  // Completed work is the ground on which the rest is seen.
  const order = [COMPLETED, ...BY_WEIGHT.filter((kind) => kind !== COMPLETED && kind !== QUEUED).reverse()];
  for (let column = 0; column < columns; column++) {
    let base = height - 1;
    for (const kind of order) {
      const share = load[column * STATE_COUNT + kind];
      if (share <= 0.001) continue;
      const high = Math.max(kind === FAILED ? 2 : 0.5, (share / most) * (height - 6));
      ctx.fillStyle = palette.states[kind];
      ctx.fillRect(left + column * CELL_WIDTH, base - high, CELL_WIDTH, high);
      base -= high;
    }
  }
  ctx.font = `11px ${palette.font}`;
  ctx.fillStyle = palette.muted;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillText(left > 110 ? `${Math.round(most)} at once` : `${Math.round(most)} ×`, 8, height / 2);
  const scale = (width - left) / Math.max(1e-9, bars.last - bars.first);
  const [x, end] = [left + (from - bars.first) * scale, left + (to - bars.first) * scale];
  if (end - x >= width - left - 1) return;
  ctx.fillStyle = palette.surface;
  ctx.globalAlpha = 0.6;
  ctx.fillRect(left, 0, x - left, height);
  ctx.fillRect(end, 0, width - end, height);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = palette.accent;
  ctx.lineWidth = 1.5;
  ctx.strokeRect(x, 0.75, Math.max(2, end - x), height - 1.5);
}

/** Return hatchings for attempts that wait for a worker, and for nodes that wait. @param {CanvasRenderingContext2D} ctx @param {string[]} states */
export function hatchesOf(ctx, states) {
  return { queued: hatchOf(ctx, states[QUEUED]), waiting: hatchOf(ctx, states[WAITING]) };
}

/** @param {CanvasRenderingContext2D} ctx @param {string} colour */
function hatchOf(ctx, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  pen.fillStyle = colour;
  pen.globalAlpha = 0.25;
  pen.fillRect(0, 0, 6, 6);
  pen.globalAlpha = 1;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.3;
  pen.beginPath();
  for (const off of [-6, 0, 6]) {
    pen.moveTo(off - 1, 7);
    pen.lineTo(off + 7, -1);
  }
  pen.stroke();
  return ctx.createPattern(tile, "repeat");
}
