// A graph as typed arrays: adjacency, layers, stages and reach. Pure; runs on the page and in the worker.

/**
 * Adjacency in compressed rows: the children of node i are children[childStart[i] … childStart[i + 1] - 1].
 * @typedef {{
 *   count: number, from: Int32Array, to: Int32Array,
 *   childStart: Int32Array, children: Int32Array, parentStart: Int32Array, parents: Int32Array,
 * }} Graph
 */

/**
 * Nodes that share a layer and a handler. `start` and `members` list the nodes of each stage.
 * @typedef {{
 *   count: number, of: Int32Array, start: Int32Array, members: Int32Array,
 *   layer: Int32Array, handler: Int32Array,
 * }} Stages
 */

/**
 * Return the adjacency of a graph that is given as pairs of node indexes.
 * @param {number} count
 * @param {ArrayLike<number>} from
 * @param {ArrayLike<number>} to
 * @returns {Graph}
 */
export function graphOf(count, from, to) {
  const sources = Int32Array.from(from);
  const targets = Int32Array.from(to);
  const [childStart, children] = rowsBy(count, sources, targets);
  const [parentStart, parents] = rowsBy(count, targets, sources);
  return { count, from: sources, to: targets, childStart, children, parentStart, parents };
}

/**
 * Return `values` grouped by `keys` (0 … count - 1), each group in the given order.
 * @param {number} count
 * @param {Int32Array} keys
 * @param {Int32Array | null} values the positions themselves where null
 * @returns {[Int32Array, Int32Array]}
 */
export function rowsBy(count, keys, values) {
  const start = new Int32Array(count + 1);
  for (let i = 0; i < keys.length; i++) start[keys[i] + 1]++;
  for (let i = 0; i < count; i++) start[i + 1] += start[i];
  const next = start.slice(0, count);
  const grouped = new Int32Array(keys.length);
  for (let i = 0; i < keys.length; i++) grouped[next[keys[i]]++] = values === null ? i : values[i];
  return [start, grouped];
}

/**
 * Return the layer of each node: its longest path from a root. A root that has children is moved beside the
 * nearest of them if `pull` is set: its dependencies are then short lines, not lines across the drawing.
 * @param {Graph} graph
 * @param {boolean} pull
 * @returns {{layer: Int32Array, layers: number}}
 */
export function layersOf(graph, pull) {
  const { count, childStart, children, parentStart } = graph;
  const layer = new Int32Array(count);
  const missing = new Int32Array(count);
  const queue = new Int32Array(count);
  let tail = 0;
  for (let i = 0; i < count; i++) {
    missing[i] = parentStart[i + 1] - parentStart[i];
    if (missing[i] === 0) queue[tail++] = i;
  }
  let layers = count > 0 ? 1 : 0;
  for (let head = 0; head < tail; head++) {
    const node = queue[head];
    for (let at = childStart[node]; at < childStart[node + 1]; at++) {
      const child = children[at];
      if (layer[child] <= layer[node]) layer[child] = layer[node] + 1;
      if (layer[child] >= layers) layers = layer[child] + 1;
      if (--missing[child] === 0) queue[tail++] = child;
    }
  }
  for (let i = 0; pull && i < count; i++) {
    if (parentStart[i + 1] > parentStart[i] || childStart[i + 1] === childStart[i]) continue;
    let nearest = layers;
    for (let at = childStart[i]; at < childStart[i + 1]; at++) nearest = Math.min(nearest, layer[children[at]]);
    layer[i] = nearest - 1;
  }
  return { layer, layers };
}

/**
 * Return the stages of a graph, ordered by layer.
 * @param {number} count
 * @param {Int32Array} layer
 * @param {number} layers
 * @param {ArrayLike<number>} handler
 * @returns {Stages}
 */
export function stagesOf(count, layer, layers, handler) {
  const [, byLayer] = rowsBy(layers, layer, null);
  /** @type {Map<number, number>} */
  const known = new Map();
  const of = new Int32Array(count);
  /** @type {number[]} */
  const layerOf = [];
  /** @type {number[]} */
  const handlerOf = [];
  for (const node of byLayer) {
    const key = handler[node] * layers + layer[node];
    let stage = known.get(key);
    if (stage === undefined) {
      stage = known.size;
      known.set(key, stage);
      layerOf.push(layer[node]);
      handlerOf.push(handler[node]);
    }
    of[node] = stage;
  }
  const [start, members] = rowsBy(known.size, of, null);
  const columns = { layer: Int32Array.from(layerOf), handler: Int32Array.from(handlerOf) };
  return { count: known.size, of, start, members, ...columns };
}

/**
 * Return the links between groups of nodes, each pair once, with the number of dependencies behind it.
 * Dependencies within a group are left out.
 * @param {Graph} graph
 * @param {Int32Array} groupOf
 * @param {number} groups
 */
export function linksBetween(graph, groupOf, groups) {
  /** @type {Map<number, number>} */
  const known = new Map();
  /** @type {number[]} */
  const from = [];
  /** @type {number[]} */
  const to = [];
  /** @type {number[]} */
  const weight = [];
  for (let i = 0; i < graph.from.length; i++) {
    const source = groupOf[graph.from[i]];
    const target = groupOf[graph.to[i]];
    if (source === target) continue;
    const key = source * groups + target;
    const link = known.get(key);
    if (link === undefined) {
      known.set(key, from.length);
      from.push(source);
      to.push(target);
      weight.push(1);
    } else weight[link]++;
  }
  return { from: Int32Array.from(from), to: Int32Array.from(to), weight: Int32Array.from(weight) };
}

export const ITSELF = 1;
export const ANCESTOR = 2;
export const DESCENDANT = 3;

/**
 * Return for each node whether it is the given node, an ancestor or a descendant of it; 0 for all others.
 * @param {Graph} graph
 * @param {ArrayLike<number>} nodes
 * @returns {Uint8Array}
 */
export function reachOf(graph, nodes) {
  const marks = new Uint8Array(graph.count);
  follow(graph.parentStart, graph.parents, nodes, marks, ANCESTOR);
  follow(graph.childStart, graph.children, nodes, marks, DESCENDANT);
  for (let i = 0; i < nodes.length; i++) marks[nodes[i]] = ITSELF;
  return marks;
}

/**
 * @param {Int32Array} start
 * @param {Int32Array} next
 * @param {ArrayLike<number>} nodes
 * @param {Uint8Array} marks
 * @param {number} mark
 */
function follow(start, next, nodes, marks, mark) {
  const stack = Array.from(nodes);
  while (stack.length > 0) {
    const node = /** @type {number} */ (stack.pop());
    for (let at = start[node]; at < start[node + 1]; at++) {
      if (marks[next[at]] !== 0) continue;
      marks[next[at]] = mark;
      stack.push(next[at]);
    }
  }
}
