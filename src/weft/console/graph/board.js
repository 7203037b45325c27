// What is drawn: the scene, the states of its nodes and what is hovered, selected and searched for. Without DOM.

import { FAILED, STATE_COUNT } from "./palette.js";
import { GRID } from "./scene.js";
import { ANCESTOR, DESCENDANT, ITSELF, reachOf } from "./topology.js";

/** @typedef {import("./scene.js").Scene} Scene */
/** @typedef {import("./topology.js").Graph} Graph */
/** @typedef {{nodes: string[], handlers: string[], handler: number[], from: number[], to: number[]}} Topology */
/** `nodes` and `items` have the mark of each node and item (see topology.js). @typedef {{nodes: Uint8Array, items: Uint8Array}} Reach */

export class Board {
  /** @param {Topology} topology */
  constructor(topology) {
    this.ids = topology.nodes;
    this.handlers = topology.handlers;
    this.handler = topology.handler;
    this.count = topology.nodes.length;
    /** @type {Graph | null} */
    this.graph = null;
    /** @type {Scene | null} */
    this.scene = null;
    /** False: the graph of a definition, whose nodes have no states. */
    this.hasStates = true;
    this.states = new Uint8Array(this.count);
    this.counts = new Uint32Array(STATE_COUNT);
    this.counts[0] = this.count;
    /** The states of each item: STATE_COUNT numbers for each. */
    this.itemCounts = new Uint32Array(0);
    /** @type {string[]} */
    this.itemNames = [];
    /** @type {number | null} */
    this.selected = null;
    /** @type {number | null} the item that is selected instead of a node: a collapsed stage */
    this.selectedItem = null;
    /** @type {Reach | null} */
    this.reach = null;
    /** @type {Uint8Array | null} 1 for each node that is searched for */
    this.matches = null;
    /** @type {Int32Array | null} made anew where null */
    this.failures = null;
    // Nodes whose state has changed since the last frame, each once.
    this.changed = new Int32Array(this.count);
    this.changedCount = 0;
    this.isChanged = new Uint8Array(this.count);
    this.allChanged = true;
  }

  /** @param {Scene} scene */
  setScene(scene) {
    this.scene = scene;
    this.reach = null;
    this.selectedItem = null;
    this.itemCounts = new Uint32Array(scene.items * STATE_COUNT);
    for (let node = 0; node < this.count; node++) this.itemCounts[scene.item[node] * STATE_COUNT + this.states[node]]++;
    this.itemNames = Array.from({ length: scene.items }, (_, item) => this.nameOf(item));
    this.allChanged = true;
  }

  /** Take the state of every node. @param {ArrayLike<number>} states */
  setStates(states) {
    for (let node = 0; node < this.count && node < states.length; node++) this.setState(node, states[node]);
  }

  /**
   * @param {number} node
   * @param {number} state
   */
  setState(node, state) {
    const before = this.states[node];
    if (before === state || !(node >= 0 && node < this.count) || !(state >= 0 && state < STATE_COUNT)) return;
    this.states[node] = state;
    this.counts[before]--;
    this.counts[state]++;
    if (before === FAILED || state === FAILED) this.failures = null;
    if (this.scene !== null) {
      const first = this.scene.item[node] * STATE_COUNT;
      this.itemCounts[first + before]--;
      this.itemCounts[first + state]++;
    }
    if (this.isChanged[node] === 1) return;
    this.isChanged[node] = 1;
    this.changed[this.changedCount++] = node;
  }

  /** Return the nodes that have changed since the last call. */
  takeChanges() {
    const changes = this.changed.subarray(0, this.changedCount);
    for (const node of changes) this.isChanged[node] = 0;
    this.changedCount = 0;
    this.allChanged = false;
    return changes;
  }

  /** Return the failed nodes, in the order of the drawing where there is one. */
  failedNodes() {
    if (this.failures === null) {
      const failed = new Int32Array(this.counts[FAILED]);
      let next = 0;
      for (let node = 0; node < this.count; node++) if (this.states[node] === FAILED) failed[next++] = node;
      this.failures = failed;
    }
    return this.failures;
  }

  /** Mark the ancestors and descendants of a node, or of all nodes of an item. @param {number | null} node @param {number | null} item */
  setReach(node, item) {
    const { graph, scene } = this;
    if (graph === null || scene === null || (node === null && item === null)) {
      this.reach = null;
      return;
    }
    const from = node === null ? scene.members.subarray(scene.start[item ?? 0], scene.start[(item ?? 0) + 1]) : [node];
    const nodes = reachOf(graph, from);
    const items = new Uint8Array(scene.items);
    for (let one = 0; one < this.count; one++) {
      const mark = nodes[one];
      const at = scene.item[one];
      if (mark !== 0 && items[at] !== ITSELF) items[at] = mark;
    }
    this.reach = { nodes, items };
  }

  /** True if a dependency between two marks leads to or from what is looked at. @param {number} from @param {number} to */
  isOnWay(from, to) {
    const up = from === ANCESTOR && (to === ANCESTOR || to === ITSELF);
    return up || (to === DESCENDANT && (from === DESCENDANT || from === ITSELF));
  }

  /** Mark the nodes whose id or handler has the text; return them. @param {string} text */
  search(text) {
    const wanted = text.trim().toLowerCase();
    if (wanted === "") {
      this.matches = null;
      return [];
    }
    const byHandler = this.handlers.map((name) => name.toLowerCase() === wanted);
    const matches = new Uint8Array(this.count);
    const found = [];
    for (let node = 0; node < this.count; node++) {
      if (!byHandler[this.handler[node]] && !this.ids[node].toLowerCase().includes(wanted)) continue;
      matches[node] = 1;
      found.push(node);
    }
    this.matches = matches;
    return found;
  }

  /** Return what an item is called: the id of its node, or what the ids of its nodes begin with. @param {number} item */
  nameOf(item) {
    const scene = /** @type {Scene} */ (this.scene);
    const first = scene.start[item];
    const many = scene.start[item + 1] - first;
    const name = this.ids[scene.members[first]];
    if (many === 1) return name;
    let length = name.length;
    for (let at = first + 1; at < scene.start[item + 1] && length > 0; at++) {
      const other = this.ids[scene.members[at]];
      let same = 0;
      while (same < length && same < other.length && other[same] === name[same]) same++;
      length = same;
    }
    const prefix = name.slice(0, length).replace(/\d+$/, "");
    return prefix.length >= 3 ? `${prefix}…` : this.handlers[this.handler[scene.members[first]]];
  }

  /** True if the nodes of an item are cards of their own in the drawing. @param {number} item */
  isGrid(item) {
    return this.scene !== null && this.scene.kind[item] === GRID;
  }
}
