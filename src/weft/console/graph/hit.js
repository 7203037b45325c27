// Which item and node lies at a point, and which ones lie in a box: by columns, never by a look at all nodes. Pure.

import { GRID, NODE, gridLeft, nodeBox } from "./scene.js";

/** @typedef {import("./scene.js").Scene} Scene */
/** @typedef {import("./camera.js").Box} Box */

/**
 * Return the item and the node at a point of the world; the node is -1 on a stage or on the head of a grid.
 * @param {Scene} scene
 * @param {number} x
 * @param {number} y
 * @returns {{item: number, node: number} | null}
 */
export function hitAt(scene, x, y) {
  let found = null;
  visitItems(scene, { x, y, width: 0, height: 0 }, (item) => {
    const node = nodeAt(scene, item, x, y);
    if (node !== null) found = { item, node };
  });
  return found;
}

/**
 * @param {Scene} scene
 * @param {number} item
 * @param {number} x
 * @param {number} y
 * @returns {number | null} null between two cells
 */
function nodeAt(scene, item, x, y) {
  if (scene.kind[item] === NODE) return scene.members[scene.start[item]];
  if (scene.kind[item] !== GRID) return -1;
  const left = x - gridLeft(scene, item);
  const top = y - scene.y[item] - scene.head[item];
  if (top < 0) return -1;
  const column = Math.floor(left / scene.cellWidth);
  const row = Math.floor(top / scene.cellHeight);
  const inside = left - column * scene.cellWidth < scene.cardWidth && top - row * scene.cellHeight < scene.cardHeight;
  const at = scene.start[item] + row * scene.columns[item] + column;
  const exists = column >= 0 && column < scene.columns[item] && at < scene.start[item + 1];
  if (inside && exists) return scene.members[at];
  return scene.head[item] > 0 ? -1 : null;
}

/**
 * Call back with each item that touches a box.
 * @param {Scene} scene
 * @param {Box} box
 * @param {(item: number) => void} visit
 */
export function visitItems(scene, box, visit) {
  const { bandStart, bandTop, bandBottom, columnX, columnWidth, columnStart, inColumn } = scene;
  for (let band = 0; band < bandStart.length; band++) {
    if (bandTop[band] > box.y + box.height || bandBottom[band] < box.y) continue;
    const end = band + 1 < bandStart.length ? bandStart[band + 1] : columnX.length;
    const from = (/** @type {number} */ at) => columnX[at] + columnWidth[at] >= box.x;
    for (let column = firstWhere(bandStart[band], end, from); column < end; column++) {
      if (columnX[column] > box.x + box.width) break;
      const last = columnStart[column + 1];
      const below = (/** @type {number} */ at) => scene.y[inColumn[at]] + scene.h[inColumn[at]] >= box.y;
      for (let at = firstWhere(columnStart[column], last, below); at < last; at++) {
        const item = inColumn[at];
        if (scene.y[item] > box.y + box.height) break;
        if (scene.x[item] <= box.x + box.width && scene.x[item] + scene.w[item] >= box.x) visit(item);
      }
    }
  }
}

/**
 * Return the first whole number of a range for which something holds that holds for all behind it.
 * @param {number} low
 * @param {number} high
 * @param {(at: number) => boolean} holds
 */
function firstWhere(low, high, holds) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Call back with each node of an item that touches a box, and the left and top edge of its card. A collapsed stage
 * shows no nodes.
 * @param {Scene} scene
 * @param {number} item
 * @param {Box} box
 * @param {(node: number, x: number, y: number) => void} visit
 */
export function visitNodes(scene, item, box, visit) {
  if (scene.kind[item] === NODE) visit(scene.members[scene.start[item]], scene.x[item], scene.y[item]);
  if (scene.kind[item] !== GRID) return;
  const left = gridLeft(scene, item);
  const top = scene.y[item] + scene.head[item];
  const many = scene.start[item + 1] - scene.start[item];
  const columns = scene.columns[item];
  const firstColumn = Math.max(0, Math.floor((box.x - left) / scene.cellWidth));
  const lastColumn = Math.min(columns - 1, Math.floor((box.x + box.width - left) / scene.cellWidth));
  const firstRow = Math.max(0, Math.floor((box.y - top) / scene.cellHeight));
  const lastRow = Math.min(
    Math.ceil(many / columns) - 1,
    Math.floor((box.y + box.height - top) / scene.cellHeight),
  );
  for (let row = firstRow; row <= lastRow; row++) {
    for (let column = firstColumn; column <= lastColumn; column++) {
      const place = row * columns + column;
      if (place >= many) break;
      const node = scene.members[scene.start[item] + place];
      visit(node, left + column * scene.cellWidth, top + row * scene.cellHeight);
    }
  }
}

/**
 * Return the number of nodes whose cards touch a box, counted by rows and columns, up to a bound.
 * @param {Scene} scene
 * @param {Box} box
 * @param {number} bound
 */
export function countNodes(scene, box, bound) {
  let count = 0;
  visitItems(scene, box, (item) => {
    if (count > bound) return;
    if (scene.kind[item] !== GRID) {
      count++;
      return;
    }
    const wide = Math.min(box.x + box.width, scene.x[item] + scene.w[item]) - Math.max(box.x, scene.x[item]);
    const high = Math.min(box.y + box.height, scene.y[item] + scene.h[item]) - Math.max(box.y, scene.y[item]);
    const cells = Math.ceil(wide / scene.cellWidth) * Math.ceil(high / scene.cellHeight);
    count += Math.min(scene.start[item + 1] - scene.start[item], Math.max(1, cells));
  });
  return count;
}

/**
 * Return the node that lies next in a direction, or -1: along dependencies to the left and right (the nearest of
 * them), within the column or grid up and down.
 * @param {Scene} scene
 * @param {import("./topology.js").Graph} graph
 * @param {number} node
 * @param {"left" | "right" | "up" | "down"} direction
 */
export function nextNode(scene, graph, node, direction) {
  const item = scene.item[node];
  const place = scene.place[node];
  const many = scene.start[item + 1] - scene.start[item];
  if (scene.kind[item] === GRID) {
    const columns = scene.columns[item];
    const step = { left: -1, right: 1, up: -columns, down: columns }[direction];
    const stays = step === -1 ? place % columns > 0 : step === 1 ? (place + 1) % columns > 0 : true;
    const next = place + step;
    if (stays && next >= 0 && next < many) return scene.members[scene.start[item] + next];
  }
  if (direction === "left") return nearest(scene, graph.parentStart, graph.parents, node);
  if (direction === "right") return nearest(scene, graph.childStart, graph.children, node);
  const next = neighbourItem(scene, item, direction === "up" ? -1 : 1);
  if (next < 0) return -1;
  return scene.members[direction === "up" ? scene.start[next + 1] - 1 : scene.start[next]];
}

/**
 * @param {Scene} scene
 * @param {Int32Array} start
 * @param {Int32Array} others
 * @param {number} node
 */
function nearest(scene, start, others, node) {
  const [, y] = nodeBox(scene, node);
  let best = -1;
  let distance = Infinity;
  for (let at = start[node]; at < start[node + 1]; at++) {
    const off = Math.abs(nodeBox(scene, others[at])[1] - y);
    if (off < distance) [best, distance] = [others[at], off];
  }
  return best;
}

/**
 * @param {Scene} scene
 * @param {number} item
 * @param {number} step
 */
function neighbourItem(scene, item, step) {
  const { inColumn, columnStart } = scene;
  const at = inColumn.indexOf(item);
  const next = at + step;
  if (next < 0 || next >= inColumn.length) return -1;
  const column = firstWhere(0, columnStart.length - 1, (one) => columnStart[one + 1] > at);
  return next >= columnStart[column] && next < columnStart[column + 1] ? inColumn[next] : -1;
}

/**
 * Return the item that lies next in a direction, or -1: along links (the nearest of them), and within the column.
 * @param {Scene} scene
 * @param {number} item
 * @param {"left" | "right" | "up" | "down"} direction
 */
export function nextItem(scene, item, direction) {
  if (direction === "up" || direction === "down") return neighbourItem(scene, item, direction === "up" ? -1 : 1);
  const [near, far] = direction === "left" ? [scene.to, scene.from] : [scene.from, scene.to];
  const middle = (/** @type {number} */ one) => scene.y[one] + scene.h[one] / 2;
  let best = -1;
  for (let link = 0; link < near.length; link++) {
    if (near[link] !== item) continue;
    const off = (/** @type {number} */ one) => Math.abs(middle(one) - middle(item));
    if (best < 0 || off(far[link]) < off(best)) best = far[link];
  }
  return best;
}
