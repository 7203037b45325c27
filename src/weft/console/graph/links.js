// Lines between items and nodes: faint where there are many, strong on the way to and from what is looked at.

import { visitItems, visitNodes } from "./hit.js";
import { GRID, nodeBox } from "./scene.js";

/** @typedef {import("./draw.js").Frame} Frame */
/** @typedef {import("./scene.js").Scene} Scene */

// Above these there is no line to be told from another.
const MOST_LINKS = 20_000;
const MOST_EDGES = 4000;
const FEW_NODES = 300;
const MOST_OF_NODE = 24;
const STRAIGHT_BELOW = 0.12;
// A path of thousands of curves is slower to stroke than many of a few dozen.
const CHUNK = 48;

/**
 * @param {Frame} frame
 * @param {import("./camera.js").Box} box
 * @param {number} visible
 */
export function drawLinks(frame, box, visible) {
  const { ctx, board, palette, camera } = frame;
  const scene = /** @type {Scene} */ (board.scene);
  const faint = board.reach !== null || board.matches !== null ? 0.25 : 1;
  const many = scene.from.length;
  const crowd = Math.min(1, 14 / Math.sqrt(Math.max(1, many)));
  const alone = singles(frame, visible);
  if (many <= MOST_LINKS) {
    ctx.strokeStyle = palette.strong;
    ctx.globalAlpha = faint * Math.max(camera.scale < STRAIGHT_BELOW ? 0.12 : 0.28, 0.75 * crowd);
    strokeLinks(frame, box, (link) => alone === NONE || !touchesGrid(scene, link), 1);
  }
  if (alone !== NONE) {
    ctx.strokeStyle = palette.strong;
    ctx.globalAlpha = faint * (alone === ALL ? Math.max(0.14, 0.75 * Math.min(1, 14 / Math.sqrt(board.graph?.from.length ?? 1))) : 0.4);
    if (alone === ALL) strokeEdges(frame, null);
    else strokeNear(frame, box);
  }
  if (board.reach === null) return;
  const { items, nodes } = board.reach;
  ctx.strokeStyle = palette.accent;
  ctx.globalAlpha = 0.9;
  strokeLinks(frame, box, (link) => board.isOnWay(items[scene.from[link]], items[scene.to[link]]) && !touchesGrid(scene, link), 2);
  strokeEdges(frame, nodes);
  ctx.globalAlpha = 1;
}

const NONE = 0;
const NEAR = 1;
const ALL = 2;

/**
 * Return which dependencies of nodes in grids are drawn one by one.
 * @param {Frame} frame
 * @param {number} visible
 */
function singles({ board, camera }, visible) {
  const scene = /** @type {Scene} */ (board.scene);
  if (!scene.staged) return (board.graph?.from.length ?? 0) <= MOST_EDGES ? ALL : NONE;
  return visible <= FEW_NODES && camera.scale >= 0.3 ? NEAR : NONE;
}

/** @param {Scene} scene @param {number} link */
function touchesGrid(scene, link) {
  return scene.kind[scene.from[link]] === GRID || scene.kind[scene.to[link]] === GRID;
}

/**
 * @param {Frame} frame
 * @param {import("./camera.js").Box} box
 * @param {(link: number) => boolean} wanted
 * @param {number} width
 */
function strokeLinks(frame, box, wanted, width) {
  const { ctx, board, camera } = frame;
  const scene = /** @type {Scene} */ (board.scene);
  let drawn = 0;
  ctx.beginPath();
  for (let link = 0; link < scene.from.length; link++) {
    if (!wanted(link) || !touches(scene, link, box)) continue;
    const weight = scene.weight[link];
    ctx.lineWidth = width * (weight === 1 ? 1.2 : Math.min(5, 1.2 + Math.log2(weight) / 3));
    trace(frame, link, camera.scale < STRAIGHT_BELOW);
    // Links of stages differ in width: each is a path of its own.
    if (scene.staged || ++drawn % CHUNK === 0) {
      ctx.stroke();
      ctx.beginPath();
    }
  }
  ctx.stroke();
}

/** @param {Scene} scene @param {number} link @param {import("./camera.js").Box} box */
function touches(scene, link, box) {
  const from = scene.from[link];
  const to = scene.to[link];
  let left = Math.min(scene.x[from], scene.x[to]);
  let right = Math.max(scene.x[from] + scene.w[from], scene.x[to]);
  let top = Math.min(scene.y[from], scene.y[to]);
  let bottom = Math.max(scene.y[from] + scene.h[from], scene.y[to] + scene.h[to]);
  for (let at = scene.bendStart[link]; at < scene.bendStart[link + 1]; at++) {
    left = Math.min(left, scene.bendX[at]);
    right = Math.max(right, scene.bendX[at]);
    top = Math.min(top, scene.bendY[at]);
    bottom = Math.max(bottom, scene.bendY[at]);
  }
  return left <= box.x + box.width && right >= box.x && top <= box.y + box.height && bottom >= box.y;
}

/** @param {Frame} frame @param {number} link @param {boolean} straight */
function trace({ ctx, board, camera }, link, straight) {
  const scene = /** @type {Scene} */ (board.scene);
  const { scale } = camera;
  const from = scene.from[link];
  const to = scene.to[link];
  let x = (scene.x[from] + scene.w[from]) * scale + camera.x;
  let y = (scene.y[from] + scene.h[from] / 2) * scale + camera.y;
  ctx.moveTo(x, y);
  const last = scene.bendStart[link + 1];
  for (let at = scene.bendStart[link]; at <= last; at++) {
    const end = at === last;
    const toX = (end ? scene.x[to] : scene.bendX[at]) * scale + camera.x;
    const toY = (end ? scene.y[to] + scene.h[to] / 2 : scene.bendY[at]) * scale + camera.y;
    if (straight || toX <= x + 1 || Math.abs(toY - y) < 0.5) ctx.lineTo(toX, toY);
    else curve(ctx, x, y, toX, toY);
    x = toX;
    y = toY;
  }
}

/** @param {CanvasRenderingContext2D} ctx @param {number} x @param {number} y @param {number} toX @param {number} toY */
function curve(ctx, x, y, toX, toY) {
  const bend = Math.min((toX - x) * 0.5, 160);
  ctx.bezierCurveTo(x + bend, y, toX - bend, toY, toX, toY);
}

/**
 * Stroke the dependencies of nodes in grids one by one.
 * @param {Frame} frame
 * @param {Uint8Array | null} marks only those on the way, where there are marks
 */
function strokeEdges(frame, marks) {
  const { ctx, board } = frame;
  const scene = /** @type {Scene} */ (board.scene);
  const { graph } = board;
  if (graph === null) return;
  let left = MOST_EDGES;
  ctx.lineWidth = marks === null ? 1 : 1.5;
  ctx.beginPath();
  for (let edge = 0; edge < graph.from.length && left > 0; edge++) {
    const from = graph.from[edge];
    const to = graph.to[edge];
    if (marks !== null && !board.isOnWay(marks[from], marks[to])) continue;
    if (scene.kind[scene.item[from]] !== GRID && scene.kind[scene.item[to]] !== GRID) continue;
    traceEdge(frame, from, to);
    if (--left % CHUNK === 0) {
      ctx.stroke();
      ctx.beginPath();
    }
  }
  ctx.stroke();
}

/**
 * Stroke the dependencies of the nodes that are seen: of each some, so that a wide fan stays a fan.
 * @param {Frame} frame
 * @param {import("./camera.js").Box} box
 */
function strokeNear(frame, box) {
  const { ctx, board } = frame;
  const scene = /** @type {Scene} */ (board.scene);
  const { graph } = board;
  if (graph === null) return;
  ctx.lineWidth = 1;
  visitItems(scene, box, (item) => {
    visitNodes(scene, item, box, (node) => {
      ctx.beginPath();
      const first = graph.parentStart[node];
      const last = Math.min(graph.parentStart[node + 1], first + MOST_OF_NODE);
      for (let at = first; at < last; at++) traceEdge(frame, graph.parents[at], node);
      const end = Math.min(graph.childStart[node + 1], graph.childStart[node] + MOST_OF_NODE);
      for (let at = graph.childStart[node]; at < end; at++) traceEdge(frame, node, graph.children[at]);
      ctx.stroke();
    });
  });
}

/** @param {Frame} frame @param {number} from @param {number} to */
function traceEdge({ ctx, board, camera }, from, to) {
  const scene = /** @type {Scene} */ (board.scene);
  const [fromX, fromY, fromW, fromH] = nodeBox(scene, from);
  const [toX, toY, , toH] = nodeBox(scene, to);
  const x = (fromX + fromW) * camera.scale + camera.x;
  const y = (fromY + fromH / 2) * camera.scale + camera.y;
  ctx.moveTo(x, y);
  curve(ctx, x, y, toX * camera.scale + camera.x, (toY + toH / 2) * camera.scale + camera.y);
}
