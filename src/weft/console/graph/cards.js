// Cards of nodes and of collapsed stages, and the frames of expanded ones.

import { formatCount } from "../ui/time.js";
import { visitItems } from "./hit.js";
import { BY_WEIGHT, STATES, STATE_COUNT } from "./palette.js";
import { GRID } from "./scene.js";
import { drawSign } from "./signs.js";

/** @typedef {import("./draw.js").Frame} Frame */

const CHEVRON = 26;
const MOST_TEXTS = 4000;

/**
 * Return a text cut in its middle until it fits, or at its end. Measuring is slow: what was cut once is kept.
 * @param {Pick<Frame, "ctx" | "texts">} frame
 * @param {string} text
 * @param {number} width
 * @param {string} font
 * @param {number} tail the share of the letters that is kept at the end
 */
export function fitted({ ctx, texts }, text, width, font, tail = 0.4) {
  const key = `${font}|${Math.round(width)}|${text}`;
  const known = texts.get(key);
  if (known !== undefined) return known;
  ctx.font = font;
  let shown = text;
  if (ctx.measureText(text).width > width) {
    let low = 0;
    let high = text.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (ctx.measureText(cut(text, middle, tail)).width <= width) low = middle;
      else high = middle - 1;
    }
    shown = low < 2 ? "" : cut(text, low, tail);
  }
  if (texts.size > MOST_TEXTS) texts.clear();
  texts.set(key, shown);
  return shown;
}

/** @param {string} text @param {number} letters @param {number} tail */
function cut(text, letters, tail) {
  if (letters >= text.length) return text;
  const kept = Math.floor(letters * tail);
  return `${text.slice(0, letters - kept).trimEnd()}…${text.slice(text.length - kept)}`;
}

/**
 * Let what follows draw in coordinates of the world.
 * @param {Frame} frame
 */
function intoWorld({ ctx, camera, ratio }) {
  ctx.setTransform(ratio * camera.scale, 0, 0, ratio * camera.scale, ratio * camera.x, ratio * camera.y);
}

/** @param {Frame} frame */
function intoScreen({ ctx, ratio }) {
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
}

/**
 * @param {Frame} frame
 * @param {number} node
 * @param {number} x
 * @param {number} y
 * @param {number} alpha
 */
export function drawNodeCard(frame, node, x, y, alpha) {
  const { ctx, board, palette } = frame;
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  const w = scene.cardWidth;
  const h = scene.cardHeight;
  const state = board.states[node];
  intoWorld(frame);
  ctx.globalAlpha = 1;
  ctx.beginPath();
  ctx.roundRect(x, y, w, h, 6);
  ctx.fillStyle = palette.raised;
  ctx.fill();
  ctx.globalAlpha = alpha;
  ctx.strokeStyle = palette.line;
  ctx.lineWidth = 1;
  ctx.stroke();
  if (board.hasStates) {
    ctx.beginPath();
    ctx.roundRect(x, y, 26, h, [6, 0, 0, 6]);
    ctx.fillStyle = palette.states[state];
    ctx.fill();
    drawSign(ctx, state, x + 13, y + h / 2, 6.5, palette.inks[state]);
  }
  const left = board.hasStates ? 34 : 12;
  const room = w - left - 8;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  const bold = `600 12.5px ${palette.font}`;
  const plain = `11.5px ${palette.font}`;
  const name = fitted(frame, board.ids[node], room, bold);
  ctx.font = bold;
  ctx.fillStyle = palette.text;
  ctx.fillText(name, x + left, y + 18);
  const handler = board.handlers[board.handler[node]] ?? "";
  const second = fitted(frame, board.hasStates ? `${STATES[state].word} · ${handler}` : handler, room, plain, 0);
  ctx.font = plain;
  ctx.fillStyle = palette.muted;
  ctx.fillText(second, x + left, y + 34);
  intoScreen(frame);
  ctx.globalAlpha = 1;
}

/**
 * Draw a collapsed stage: its name, its number of nodes, its states as a bar and in words.
 * @param {Frame} frame
 * @param {number} item
 * @param {number} alpha
 */
export function drawStageCard(frame, item, alpha) {
  const { ctx, board, camera, palette } = frame;
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  const [x, y, w, h] = [scene.x[item], scene.y[item], scene.w[item], scene.h[item]];
  const many = scene.start[item + 1] - scene.start[item];
  intoWorld(frame);
  // Two sheets behind the card: there is more than one node here.
  for (const off of [6, 3, 0]) {
    ctx.globalAlpha = 1;
    ctx.beginPath();
    ctx.roundRect(x + off, y + off, w, h, 6);
    ctx.fillStyle = palette.raised;
    ctx.fill();
    ctx.globalAlpha = alpha;
    ctx.strokeStyle = palette.line;
    ctx.lineWidth = 1;
    ctx.stroke();
  }
  const texts = camera.scale >= 0.4;
  bar(frame, item, texts ? [x + 12, y + h - 18, w - 24, 8] : [x + 4, y + 4, w - 8, h - 8]);
  if (texts) {
    const bold = `600 13px ${palette.font}`;
    const count = formatCount(many);
    ctx.font = bold;
    ctx.textBaseline = "alphabetic";
    ctx.textAlign = "right";
    ctx.fillStyle = palette.text;
    ctx.fillText(`× ${count}`, x + w - CHEVRON - 4, y + 21);
    const room = w - CHEVRON - 24 - ctx.measureText(`× ${count}`).width;
    ctx.textAlign = "left";
    const name = fitted(frame, board.itemNames[item], room, bold);
    ctx.font = bold;
    ctx.fillText(name, x + 12, y + 21);
    drawChevron(ctx, x + w - CHEVRON / 2 - 2, y + 16, palette.muted);
    if (board.hasStates) words(frame, item, x + 12, y + 43, w - 24);
  }
  intoScreen(frame);
  ctx.globalAlpha = 1;
}

/**
 * True if a point of the world is on the mark that expands a stage, or collapses a grid.
 * @param {import("./scene.js").Scene} scene
 * @param {number} item
 * @param {number} x
 * @param {number} y
 */
export function isOnChevron(scene, item, x, y) {
  if (scene.kind[item] === GRID) return y < scene.y[item] + scene.head[item];
  return x > scene.x[item] + scene.w[item] - CHEVRON - 8 && y < scene.y[item] + 30;
}

/** @param {CanvasRenderingContext2D} ctx @param {number} x @param {number} y @param {string} ink */
function drawChevron(ctx, x, y, ink) {
  ctx.beginPath();
  ctx.moveTo(x - 2.5, y - 5);
  ctx.lineTo(x + 2.5, y);
  ctx.lineTo(x - 2.5, y + 5);
  ctx.lineWidth = 1.8;
  ctx.strokeStyle = ink;
  ctx.stroke();
}

/**
 * Draw the states of an item as parts of a bar. No state that occurs is too thin to be seen.
 * @param {Frame} frame
 * @param {number} item
 * @param {[number, number, number, number]} box
 */
function bar({ ctx, board, palette }, item, [x, y, w, h]) {
  const counts = board.itemCounts.subarray(item * STATE_COUNT, (item + 1) * STATE_COUNT);
  const widths = barWidths(counts, w, 4);
  let left = x;
  ctx.save();
  ctx.beginPath();
  ctx.roundRect(x, y, w, h, Math.min(4, h / 2));
  ctx.clip();
  for (const state of BY_WEIGHT) {
    if (widths[state] === 0) continue;
    ctx.fillStyle = palette.states[state];
    ctx.fillRect(left, y, widths[state], h);
    left += widths[state];
  }
  ctx.restore();
}

/**
 * Return the width of each state in a bar. A state that occurs has at least `least`.
 * @param {ArrayLike<number>} counts
 * @param {number} width
 * @param {number} least
 */
export function barWidths(counts, width, least) {
  const widths = new Float64Array(counts.length);
  let total = 0;
  for (let i = 0; i < counts.length; i++) total += counts[i];
  if (total === 0) return widths;
  let fixed = 0;
  let rest = 0;
  for (let i = 0; i < counts.length; i++) {
    if (counts[i] > 0 && (counts[i] / total) * width < least) fixed += least;
    else rest += counts[i];
  }
  const room = Math.max(0, width - fixed);
  for (let i = 0; i < counts.length; i++) {
    if (counts[i] === 0) continue;
    widths[i] = (counts[i] / total) * width < least ? least : (counts[i] / rest) * room;
  }
  return widths;
}

/**
 * Write the states of an item: signs and numbers, what matters first.
 * @param {Frame} frame
 * @param {number} item
 * @param {number} x
 * @param {number} y
 * @param {number} width
 */
function words({ ctx, board, palette }, item, x, y, width) {
  ctx.font = `11.5px ${palette.font}`;
  let left = x;
  for (const state of BY_WEIGHT) {
    const count = board.itemCounts[item * STATE_COUNT + state];
    if (count === 0) continue;
    const text = formatCount(count);
    const wide = 16 + ctx.measureText(text).width + 10;
    if (left + wide > x + width + 10) break;
    drawSign(ctx, state, left + 6, y - 4, 5, palette.words[state]);
    ctx.fillStyle = palette.text;
    ctx.fillText(text, left + 16, y);
    left += wide;
  }
}

/**
 * Draw the frames and names of expanded stages, below their nodes.
 * @param {Frame} frame
 * @param {import("./camera.js").Box} box
 */
export function drawFrames(frame, box) {
  const { ctx, board, camera, palette } = frame;
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  if (!scene.staged) return;
  visitItems(scene, box, (item) => {
    if (scene.kind[item] !== GRID) return;
    const x = scene.x[item] * camera.scale + camera.x;
    const y = scene.y[item] * camera.scale + camera.y;
    const w = scene.w[item] * camera.scale;
    const h = scene.h[item] * camera.scale;
    ctx.beginPath();
    ctx.roundRect(x, y, w, h, Math.min(8, h / 20));
    ctx.fillStyle = palette.raised;
    ctx.fill();
    ctx.strokeStyle = palette.line;
    ctx.lineWidth = 1;
    ctx.stroke();
    drawHead(frame, item, x, y, w);
  });
}

/**
 * @param {Frame} frame
 * @param {number} item
 * @param {number} x
 * @param {number} y
 * @param {number} w
 */
function drawHead(frame, item, x, y, w) {
  const { ctx, board, camera, palette } = frame;
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  const head = scene.head[item] * camera.scale;
  const size = Math.min(13, head * 0.72);
  if (size < 7 || w < 30) return;
  const count = ` × ${formatCount(scene.start[item + 1] - scene.start[item])}`;
  const font = `600 ${Math.round(size)}px ${palette.font}`;
  // The name stays in view while the grid is scrolled past the left edge.
  const left = Math.max(x, Math.min(0, x + w - 160));
  const room = x + w - left - 12;
  // Measuring hundreds of heads takes longer than drawing them.
  const tail = count.length * size * 0.66;
  const name = fitted(frame, board.itemNames[item], Math.floor(room - tail), font);
  ctx.font = font;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillStyle = palette.text;
  const text = name === "" ? "" : `${name}${count}`;
  ctx.fillText(text, left + 8, y + head / 2);
}
