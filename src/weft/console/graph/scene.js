// What a drawing shows: items (a node, a collapsed stage, or a grid of nodes), their links and their places.
// Pure; runs on the page and in the worker.

import { arrange } from "./layout.js";
import { graphOf, layersOf, linksBetween, rowsBy, stagesOf } from "./topology.js";

export const NODE = 0;
export const STAGE = 1;
export const GRID = 2;

/** Above so many nodes a drawing opens collapsed by stage. */
export const COLLAPSE_ABOVE = 2000;
const CARD_HEIGHT = 44;
const STAGE_WIDTH = 232;
const STAGE_HEIGHT = 76;
const GAP_X = 64;
const GAP_Y = 14;
const CELL_GAP_X = 12;
const CELL_GAP_Y = 8;
const PADDING = 10;
const ASPECT = 1.6;
// Layers of a small graph are wrapped only where one column each would be far too tall to read.
const TALL = 0.9;
const LEAST_ROWS = 12;

/**
 * @typedef {import("./topology.js").Graph} Graph
 * @typedef {import("./topology.js").Stages} Stages
 * @typedef {{graph: Graph, layer: Int32Array, layers: number, stages: Stages, staged: boolean, cardWidth: number}} Model
 *
 * `item` is the item of each node; `members` lists the nodes of each item; `place` is the position of a node among
 * them. `stage` is the stage of an item, or -1. A grid begins `head` below the top of its item.
 * @typedef {import("./layout.js").Placed & {
 *   items: number, kind: Uint8Array, stage: Int32Array, item: Int32Array, place: Int32Array,
 *   start: Int32Array, members: Int32Array, w: Float32Array, h: Float32Array, columns: Int32Array,
 *   head: Float32Array, from: Int32Array, to: Int32Array, weight: Int32Array,
 *   cardWidth: number, cardHeight: number, cellWidth: number, cellHeight: number, staged: boolean,
 * }} Scene
 */

/**
 * Return what every scene of a graph is made from.
 * @param {number} count
 * @param {ArrayLike<number>} from
 * @param {ArrayLike<number>} to
 * @param {ArrayLike<number>} handler
 * @param {number} cardWidth
 * @returns {Model}
 */
export function modelOf(count, from, to, handler, cardWidth) {
  const graph = graphOf(count, from, to);
  const { layer, layers } = layersOf(graph, count <= COLLAPSE_ABOVE);
  const stages = stagesOf(count, layer, layers, handler);
  // A graph that has nearly as many stages as nodes, such as a chain, is not easier to read by stages.
  const staged = count > COLLAPSE_ABOVE && stages.count * 3 <= count;
  return { graph, layer, layers, stages, staged, cardWidth };
}

/**
 * Return the items and their places. `expanded` has a byte for each stage: 1 where its nodes are shown.
 * @param {Model} model
 * @param {Uint8Array} expanded
 * @returns {Scene}
 */
export function sceneOf(model, expanded) {
  const parts = model.staged ? partsByStage(model, expanded) : partsByNode(model);
  const { items, item, kind, stage, layer } = parts;
  const { cardWidth } = model;
  const [start, members] = rowsBy(items, item, null);
  const place = new Int32Array(model.graph.count);
  for (let one = 0; one < items; one++) {
    for (let at = start[one]; at < start[one + 1]; at++) place[members[at]] = at - start[one];
  }
  const sizes = sizesOf(model, parts, start);
  const { gapX } = extentOf(sizes, layer, model.layers);
  const { from, to, weight } = linksBetween(model.graph, item, items);
  const placed = arrange({
    ...{ count: items, from, to, layer, layers: model.layers, width: sizes.w, height: sizes.h },
    ...{ gapX, gapY: GAP_Y, aspect: ASPECT },
  });
  placed.operations += 6 * model.graph.from.length + 8 * model.graph.count;
  return {
    ...placed,
    ...{ items, kind, stage, item, place, start, members, from, to, weight, staged: model.staged },
    ...sizes,
    ...{ cardWidth, cardHeight: CARD_HEIGHT },
    ...{ cellWidth: cardWidth + CELL_GAP_X, cellHeight: CARD_HEIGHT + CELL_GAP_Y },
  };
}

/**
 * Return the smallest and largest corner of a node's card; the whole item's where the node is in a collapsed stage.
 * @param {Scene} scene
 * @param {number} node
 * @returns {[number, number, number, number]} x, y, width, height
 */
export function nodeBox(scene, node) {
  const item = scene.item[node];
  if (scene.kind[item] !== GRID) return [scene.x[item], scene.y[item], scene.w[item], scene.h[item]];
  const columns = scene.columns[item];
  const row = Math.floor(scene.place[node] / columns);
  const column = scene.place[node] - row * columns;
  const padding = scene.head[item] > 0 ? PADDING : 0;
  return [
    scene.x[item] + padding + column * scene.cellWidth,
    scene.y[item] + scene.head[item] + row * scene.cellHeight,
    scene.cardWidth,
    scene.cardHeight,
  ];
}

/**
 * Return the left edge of the cells of a grid.
 * @param {Scene} scene
 * @param {number} item
 */
export function gridLeft(scene, item) {
  return scene.x[item] + (scene.head[item] > 0 ? PADDING : 0);
}

/**
 * `rows` is the most rows of a grid.
 * @typedef {{
 *   items: number, item: Int32Array, kind: Uint8Array, stage: Int32Array, layer: Int32Array, rows: number,
 * }} Parts
 */

/**
 * @param {Model} model
 * @param {Uint8Array} expanded
 * @returns {Parts}
 */
function partsByStage(model, expanded) {
  const { stages, layers } = model;
  const kind = new Uint8Array(stages.count);
  let most = 1;
  for (let i = 0; i < stages.count; i++) {
    const many = stages.start[i + 1] - stages.start[i];
    kind[i] = many === 1 ? NODE : expanded[i] === 1 ? GRID : STAGE;
    if (kind[i] === GRID) most = Math.max(most, many);
  }
  const stage = Int32Array.from(kind, (_, i) => i);
  const parts = { items: stages.count, item: stages.of, kind, stage, layer: stages.layer, rows: 1 };
  parts.rows = closest(Math.min(4, most), most, (rows) => {
    const sizes = sizesOf(model, { ...parts, rows }, stages.start);
    const { width, height } = extentOf(sizes, stages.layer, layers);
    return width / height;
  });
  return parts;
}

/**
 * @param {Model} model
 * @returns {Parts}
 */
function partsByNode({ graph, layer, layers, cardWidth }) {
  const [start, byLayer] = rowsBy(layers, layer, null);
  const rows = rowsOfLayers(start, cardWidth);
  const item = new Int32Array(graph.count);
  const kinds = [];
  const layerOf = [];
  for (let i = 0; i < layers; i++) {
    const wrapped = start[i + 1] - start[i] > rows;
    for (let at = start[i]; at < start[i + 1]; at++) {
      if (!wrapped || at === start[i]) {
        kinds.push(wrapped ? GRID : NODE);
        layerOf.push(i);
      }
      item[byLayer[at]] = kinds.length - 1;
    }
  }
  const stage = new Int32Array(kinds.length).fill(-1);
  return { items: kinds.length, item, kind: Uint8Array.from(kinds), stage, layer: Int32Array.from(layerOf), rows };
}

/**
 * Return the most nodes that a layer may show one below the other.
 * @param {Int32Array} start
 * @param {number} cardWidth
 */
function rowsOfLayers(start, cardWidth) {
  const layers = start.length - 1;
  let most = 1;
  for (let i = 0; i < layers; i++) most = Math.max(most, start[i + 1] - start[i]);
  const ratio = (/** @type {number} */ rows) => {
    let columns = 0;
    for (let i = 0; i < layers; i++) columns += Math.ceil((start[i + 1] - start[i]) / rows);
    return (columns * (cardWidth + CELL_GAP_X) + layers * GAP_X) / (rows * (CARD_HEIGHT + GAP_Y));
  };
  if (most <= LEAST_ROWS || ratio(most) >= TALL) return most;
  return closest(LEAST_ROWS, most, ratio);
}

/**
 * Return the number of rows whose drawing comes nearest to the shape of a page: the ratio falls as rows grow.
 * @param {number} least
 * @param {number} most
 * @param {(rows: number) => number} ratio
 */
function closest(least, most, ratio) {
  let low = least;
  let high = most;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ratio(middle) > ASPECT) low = middle + 1;
    else high = middle;
  }
  const off = (/** @type {number} */ rows) => Math.abs(Math.log(ratio(rows) / ASPECT));
  return low > least && off(low - 1) < off(low) ? low - 1 : low;
}

/**
 * Return the size of each item.
 * @param {Model} model
 * @param {Parts} parts
 * @param {Int32Array} start
 */
function sizesOf({ cardWidth, staged }, { items, kind, rows }, start) {
  const w = new Float32Array(items).fill(cardWidth);
  const h = new Float32Array(items).fill(CARD_HEIGHT);
  const columns = new Int32Array(items).fill(1);
  const head = new Float32Array(items);
  for (let i = 0; i < items; i++) {
    if (kind[i] === STAGE) [w[i], h[i]] = [STAGE_WIDTH, STAGE_HEIGHT];
    if (kind[i] !== GRID) continue;
    const many = start[i + 1] - start[i];
    columns[i] = Math.ceil(many / rows);
    const wide = columns[i] * (cardWidth + CELL_GAP_X) - CELL_GAP_X;
    const high = Math.ceil(many / columns[i]) * (CARD_HEIGHT + CELL_GAP_Y) - CELL_GAP_Y;
    // The name of a stage stands in its head, which has to be seen from afar, too.
    head[i] = staged ? Math.min(160, Math.max(34, Math.min(high, wide) * 0.05)) : 0;
    w[i] = wide + (staged ? 2 * PADDING : 0);
    h[i] = head[i] + high + (staged ? PADDING : 0);
  }
  return { w, h, columns, head };
}

/**
 * Return the width and height of the drawing, and the gap between its columns: wider in a taller one.
 * @param {{w: Float32Array, h: Float32Array}} sizes
 * @param {Int32Array} layer
 * @param {number} layers
 */
function extentOf({ w, h }, layer, layers) {
  const widths = new Float64Array(layers);
  const heights = new Float64Array(layers);
  for (let i = 0; i < w.length; i++) {
    widths[layer[i]] = Math.max(widths[layer[i]], w[i]);
    heights[layer[i]] += h[i] + GAP_Y;
  }
  let width = 0;
  let height = 1;
  for (let i = 0; i < layers; i++) {
    width += widths[i];
    height = Math.max(height, heights[i]);
  }
  const gapX = Math.max(GAP_X, Math.min(height * 0.04, (width / Math.max(1, layers)) * 0.5));
  return { width: width + layers * gapX, height, gapX };
}
