// Draws a board on a canvas, with as much detail as there is room for: cards, filled boxes, and from afar one
// picture of all boxes (heat.js). Called once a frame at most.

import { drawFrames, drawNodeCard, drawStageCard } from "./cards.js";
import { countNodes, visitItems, visitNodes } from "./hit.js";
import { drawLinks } from "./links.js";
import { FAILED, STATE_COUNT } from "./palette.js";
import { GRID, STAGE, nodeBox } from "./scene.js";
import { signSprite } from "./signs.js";
import { seen } from "./camera.js";

const MOST_CARDS = 300;
const CARDS_FROM = 0.55;
const MOST_SIGNS = 1500;
const SIGN_PIXELS = 9;
const LABEL_WIDTH = 54;
const LABEL_HEIGHT = 13;
const DIM = 0.22;

/** @typedef {import("./board.js").Board} Board */
/** @typedef {import("./camera.js").Camera} Camera */
/**
 * @typedef {{
 *   ctx: CanvasRenderingContext2D, board: Board, camera: Camera, palette: import("./palette.js").Palette,
 *   width: number, height: number, ratio: number, texts: Map<string, string>,
 * }} Frame
 */

/**
 * Draw a frame; return which level of detail it has.
 * @param {Frame} frame
 * @param {import("./heat.js").Heat} heat
 * @returns {"cards" | "boxes" | "heat" | "empty"}
 */
export function drawFrame(frame, heat) {
  const { ctx, board, camera, width, height, ratio } = frame;
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
  const { scene } = board;
  if (scene === null || scene.items === 0) return "empty";
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  const box = seen(camera, width, height);
  const visible = countNodes(scene, box, 1e9);
  const cards = visible <= MOST_CARDS && camera.scale >= CARDS_FROM;
  drawFrames(frame, box);
  const far = heat.covers(frame, visible);
  drawLinks(frame, box, visible);
  if (far) heat.paint(frame);
  /** @type {number[]} */
  const stages = [];
  visitItems(scene, box, (item) => {
    if (scene.kind[item] === STAGE) stages.push(item);
  });
  if (cards) drawCards(frame, box);
  else if (!far) drawBoxes(frame, box, visible);
  else if (board.reach !== null) drawReached(frame, box);
  for (const item of stages) drawStageCard(frame, item, dimmedItem(board, item) ? DIM : 1);
  if (!cards) drawFailures(frame);
  drawMarks(frame, box);
  ctx.globalAlpha = 1;
  return cards ? "cards" : far ? "heat" : "boxes";
}

/** @param {Board} board @param {number} item */
function dimmedItem(board, item) {
  return board.reach !== null && board.reach.items[item] === 0;
}

/** @param {Board} board @param {number} node */
function alphaOf(board, node) {
  if (board.reach !== null && board.reach.nodes[node] === 0) return DIM;
  if (board.matches !== null && board.matches[node] === 0) return DIM;
  return 1;
}

/** @param {Frame} frame @param {import("./camera.js").Box} box */
function drawCards(frame, box) {
  const { board } = frame;
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  visitItems(scene, box, (item) => {
    visitNodes(scene, item, box, (node, x, y) => drawNodeCard(frame, node, x, y, alphaOf(board, node)));
  });
}

/**
 * Draw every node that is seen as a box of its state's colour, all boxes of a colour together.
 * @param {Frame} frame
 * @param {import("./camera.js").Box} box
 * @param {number} visible
 */
function drawBoxes(frame, box, visible) {
  const { ctx, board, camera, palette } = frame;
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  const w = scene.cardWidth * camera.scale;
  const h = scene.cardHeight * camera.scale;
  /** @type {number[][]} nodes as node, x, y; those that are dimmed are in the second half */
  const piles = Array.from({ length: 2 * STATE_COUNT }, () => []);
  visitItems(scene, box, (item) => {
    visitNodes(scene, item, box, (node, x, y) => {
      const dim = alphaOf(board, node) < 1 ? STATE_COUNT : 0;
      piles[board.states[node] + dim].push(node, x * camera.scale + camera.x, y * camera.scale + camera.y);
    });
  });
  const signs = h >= SIGN_PIXELS && visible <= MOST_SIGNS;
  const labels = w >= LABEL_WIDTH && h >= LABEL_HEIGHT && visible <= MOST_CARDS;
  const round = visible <= MOST_SIGNS && h > 6;
  piles.forEach((pile, at) => {
    const state = at % STATE_COUNT;
    ctx.globalAlpha = at >= STATE_COUNT ? DIM : 1;
    ctx.fillStyle = board.hasStates ? palette.states[state] : palette.line;
    if (round) {
      ctx.beginPath();
      for (let i = 0; i < pile.length; i += 3) ctx.roundRect(pile[i + 1], pile[i + 2], w, h, Math.min(4, h / 5));
      ctx.fill();
    } else for (let i = 0; i < pile.length; i += 3) ctx.fillRect(pile[i + 1], pile[i + 2], w, h);
    if (!board.hasStates) {
      if (labels) drawLabels(frame, pile, w, h, 0, palette.text);
      return;
    }
    if (!signs) return;
    const size = Math.round(Math.min(h * 0.8, 16) * frame.ratio);
    const sprite = signSprite(state, size, palette.inks[state]);
    const shown = size / frame.ratio;
    for (let i = 0; i < pile.length; i += 3) {
      const x = labels ? pile[i + 1] + 4 : pile[i + 1] + (w - shown) / 2;
      ctx.drawImage(sprite, x, pile[i + 2] + (h - shown) / 2, shown, shown);
    }
    if (labels) drawLabels(frame, pile, w, h, shown, palette.inks[state]);
  });
  ctx.globalAlpha = 1;
}

/**
 * @param {Frame} frame
 * @param {number[]} pile
 * @param {number} w
 * @param {number} h
 * @param {number} sign
 * @param {string} ink
 */
function drawLabels(frame, pile, w, h, sign, ink) {
  const { ctx, board, palette } = frame;
  const size = Math.min(12, Math.max(9, h * 0.62));
  ctx.font = `500 ${size}px ${palette.font}`;
  ctx.fillStyle = ink;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const letters = Math.floor((w - sign - 12) / (size * 0.62));
  for (let i = 0; i < pile.length; i += 3) {
    ctx.fillText(shortened(board.ids[pile[i]], letters), pile[i + 1] + sign + 8, pile[i + 2] + h / 2 + 0.5);
  }
}

/** Return a text of at most so many letters; what is left out is in the middle. @param {string} text @param {number} letters */
export function shortened(text, letters) {
  if (text.length <= letters) return text;
  if (letters < 3) return "";
  const tail = Math.floor((letters - 1) / 2);
  return `${text.slice(0, letters - 1 - tail)}…${text.slice(text.length - tail)}`;
}

/**
 * Draw over the dimmed picture the boxes that are ancestors or descendants of what is looked at.
 * @param {Frame} frame
 * @param {import("./camera.js").Box} box
 */
function drawReached(frame, box) {
  const { ctx, board, camera, palette } = frame;
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  const marks = board.reach?.nodes;
  const w = Math.max(2, scene.cardWidth * camera.scale);
  const h = Math.max(2, scene.cardHeight * camera.scale);
  visitItems(scene, box, (item) => {
    if (board.reach?.items[item] === 0) return;
    visitNodes(scene, item, box, (node, x, y) => {
      if (marks === undefined || marks[node] === 0) return;
      ctx.fillStyle = palette.states[board.states[node]];
      ctx.fillRect(x * camera.scale + camera.x, y * camera.scale + camera.y, w, h);
    });
  });
}

/**
 * Draw failed nodes large enough to be found, and with a cross: a colour alone is not seen by everybody.
 * @param {Frame} frame
 */
function drawFailures(frame) {
  const { ctx, board, camera, palette } = frame;
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  const w = scene.cardWidth * camera.scale;
  const h = scene.cardHeight * camera.scale;
  const failed = board.failedNodes();
  // Boxes that are large enough show the sign; where thousands have failed, the colour of whole areas says so.
  if (h >= SIGN_PIXELS || failed.length > MOST_SIGNS) return;
  const size = Math.max(3, Math.min(6, h));
  const wide = Math.max(w, size);
  ctx.globalAlpha = 1;
  ctx.fillStyle = palette.states[FAILED];
  ctx.strokeStyle = palette.text;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const node of failed) {
    if (scene.kind[scene.item[node]] === STAGE || alphaOf(board, node) < 1) continue;
    const [worldX, worldY] = nodeBox(scene, node);
    const [x, y] = [worldX * camera.scale + camera.x + w / 2, worldY * camera.scale + camera.y + h / 2];
    if (x + w < 0 || y + h < 0 || x - w > frame.width || y - h > frame.height) continue;
    ctx.fillRect(x - wide / 2, y - size / 2, wide, size);
    ctx.moveTo(x - size / 2, y - size / 2);
    ctx.lineTo(x + size / 2, y + size / 2);
    ctx.moveTo(x + size / 2, y - size / 2);
    ctx.lineTo(x - size / 2, y + size / 2);
  }
  ctx.stroke();
}

/**
 * Draw rings around what is selected, looked at and searched for.
 * @param {Frame} frame
 * @param {import("./camera.js").Box} box
 */
function drawMarks(frame, box) {
  const { ctx, board, palette } = frame;
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  ctx.globalAlpha = 1;
  if (board.matches !== null) {
    let left = MOST_SIGNS;
    visitItems(scene, box, (item) => {
      if (scene.kind[item] === STAGE) {
        if (hasMatch(board, item)) ring(frame, [scene.x[item], scene.y[item], scene.w[item], scene.h[item]], palette.accent, 2);
        return;
      }
      visitNodes(scene, item, box, (node, x, y) => {
        if (board.matches?.[node] !== 1 || left-- <= 0) return;
        ring(frame, [x, y, scene.cardWidth, scene.cardHeight], palette.accent, 1.5);
      });
    });
  }
  if (board.selectedItem !== null) {
    const item = board.selectedItem;
    ring(frame, [scene.x[item], scene.y[item], scene.w[item], scene.h[item]], palette.accent, 3);
  }
  if (board.selected !== null && board.selected < board.count) ring(frame, nodeBox(scene, board.selected), palette.accent, 3);
  ctx.globalAlpha = 1;
}

/** @param {Board} board @param {number} item */
function hasMatch(board, item) {
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  if (scene.kind[item] === GRID || board.matches === null) return false;
  for (let at = scene.start[item]; at < scene.start[item + 1]; at++) {
    if (board.matches[scene.members[at]] === 1) return true;
  }
  return false;
}

/**
 * @param {Frame} frame
 * @param {[number, number, number, number]} box in the world
 * @param {string} colour
 * @param {number} width
 */
function ring({ ctx, camera, palette }, [x, y, w, h], colour, width) {
  const gap = 1 + width / 2;
  const left = x * camera.scale + camera.x - gap;
  const top = y * camera.scale + camera.y - gap;
  const wide = Math.max(6, w * camera.scale + 2 * gap);
  const high = Math.max(6, h * camera.scale + 2 * gap);
  ctx.beginPath();
  ctx.roundRect(left, top, wide, high, Math.min(8, high / 4));
  if (width > 2) {
    ctx.lineWidth = width + 2;
    ctx.strokeStyle = palette.surface;
    ctx.stroke();
  }
  ctx.lineWidth = width;
  ctx.strokeStyle = colour;
  ctx.stroke();
}

