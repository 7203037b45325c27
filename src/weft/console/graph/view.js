// The graph of an execution in an element: mounts the canvas, keeps the camera, and draws a frame where something
// has changed. States never move a node: a patch of thousands of them costs one frame.

import { Board } from "./board.js";
import { isOnChevron } from "./cards.js";
import { drawFrame } from "./draw.js";
import { Heat } from "./heat.js";
import { hitAt, nextItem, nextNode } from "./hit.js";
import { interact } from "./interact.js";
import { Layouts } from "./layouts.js";
import { Minimap } from "./minimap.js";
import { formatCount } from "../ui/time.js";
import { FAILED, readPalette, watchTheme } from "./palette.js";
import { GRID, STAGE, nodeBox } from "./scene.js";
import { Speech, describe, describeItem } from "./speech.js";
import { Tip } from "./tip.js";
import { legendOf, toolbarOf } from "./toolbar.js";
import { useStyle } from "./style.js";
import { Viewport } from "./viewport.js";

// Of so many matches one is looked for in view, before the view moves to the first.
const FEW_FOUND = 500;

/**
 * @typedef {{
 *   topology: import("./board.js").Topology, states?: ArrayLike<number> | null, hasStates?: boolean, selected?: number | null,
 *   onSelect?: (index: number | null) => void, onOpen?: (index: number) => void, toolbar?: boolean,
 * }} GraphOptions
 * @typedef {ReturnType<typeof mountGraph>} GraphView
 */

/**
 * Show a graph in an element, which gives it its size.
 * @param {HTMLElement} element
 * @param {GraphOptions} options
 */
export function mountGraph(element, options) {
  const view = new View(element, options);
  return {
    /** Take the state of every node, in the order of the topology. @param {ArrayLike<number>} states */
    setStates: (states) => view.setStates(states),
    /** Take changes: pairs of the index of a node and its state. @param {[number, number][]} changes */
    patch: (changes) => view.patch(changes),
    /** Select a node and bring it into view. @param {number | null} index */
    select: (index) => view.select(index, true),
    /** Mark the nodes whose id has the text; return how many. @param {string} text */
    search: (text) => view.search(text),
    nextFailure: () => view.nextFailure(1),
    fit: () => view.port.fit(true),
    toggleAll: () => view.toggleAll(),
    /** Show all nodes of a graph that opens by stages, or its stages. @param {boolean} all */
    expandAll: (all) => view.expandAll(all),
    /** Resolves once the graph is drawn. */
    ready: view.ready,
    destroy: () => view.destroy(),
  };
}

class View {
  /** @param {HTMLElement} element @param {GraphOptions} options */
  constructor(element, options) {
    this.styled = useStyle(new URL("./view.css", import.meta.url).href);
    this.options = options;
    this.board = new Board(options.topology);
    this.layouts = new Layouts(options.topology);
    this.heat = new Heat();
    this.expanded = new Uint8Array(0);
    /** @type {Int32Array} */
    this.stageOf = new Int32Array(0);
    /** @type {number[]} */
    this.found = [];
    this.foundAt = 0;
    this.frame = 0;
    this.gone = false;
    this.pointed = "";
    this.detail = "empty";
    /** @type {Map<string, string>} */
    this.texts = new Map();
    this.root = made("div", "weft-graph");
    this.stage = made("div", "weft-graph-stage");
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.ratio = 1;
    this.note = made("div", "weft-graph-note");
    this.note.textContent = this.board.count === 0 ? "This workflow has no nodes." : "Laying out the graph…";
    const extent = () => ({ width: this.board.scene?.width ?? 1, height: this.board.scene?.height ?? 1 });
    this.port = new Viewport(extent, () => this.moved());
    this.minimap = new Minimap((x, y) => this.port.lookAt(x, y, this.port.camera.scale, false));
    this.minimap.canvas.hidden = true;
    this.tip = new Tip();
    this.speech = new Speech(this.canvas);
    this.tools = toolbarOf(this.commands());
    this.legend = legendOf();
    this.stage.append(this.canvas, this.note, this.minimap.canvas, this.tip.element, this.speech.element);
    if (options.toolbar !== false) this.root.append(this.tools.row);
    this.root.append(this.stage, this.legend.list);
    element.append(this.root);
    this.palette = readPalette(this.root);
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.stage);
    this.unwatch = watchTheme(() => this.recolour());
    interact(this.canvas, this.actions());
    this.board.hasStates = options.hasStates ?? true;
    this.legend.list.hidden = !this.board.hasStates;
    if (options.states) this.board.setStates(options.states);
    this.board.selected = options.selected ?? null;
    this.ready = this.load();
  }

  /** @returns {import("./toolbar.js").Commands} */
  commands() {
    return {
      search: (text, step) => this.searchFor(text, step),
      nextFailure: (step) => this.nextFailure(step),
      fit: () => this.port.fit(true),
      zoom: (factor) => this.port.zoom(factor, this.port.width / 2, this.port.height / 2),
      toggleAll: () => this.toggleAll(),
    };
  }

  /** @returns {import("./interact.js").Actions} */
  actions() {
    return {
      zoom: (factor, x, y) => this.port.zoom(factor, x, y),
      pan: (x, y) => this.port.pan(x, y),
      hover: (x, y) => this.hover(x, y),
      leave: () => this.leave(),
      press: (x, y) => this.press(x, y),
      pressTwice: (x, y) => this.pressTwice(x, y),
      step: (direction) => this.step(direction),
      open: () => this.open(),
      clear: () => this.clear(),
      fit: () => this.port.fit(true),
      nextFailure: (step) => this.nextFailure(step),
      toggleAll: () => this.toggleAll(),
    };
  }

  async load() {
    const [{ graph, stages, stageOf }] = await Promise.all([this.layouts.open(), this.styled]);
    if (this.gone) return;
    this.board.graph = graph;
    this.expanded = new Uint8Array(stages);
    this.stageOf = stageOf;
    const { selected } = this.board;
    if (selected !== null && selected < this.board.count) this.expanded[stageOf[selected]] = 1;
    await this.relayout();
    if (this.gone) return;
    this.note.hidden = this.board.count > 0;
    this.resize();
    if (selected !== null && selected < this.board.count) this.bring(selected, false);
    this.drawNow(performance.now());
    performance.mark("weft-graph-ready");
  }

  async relayout() {
    const scene = await this.layouts.scene(this.expanded);
    if (this.gone) return;
    this.board.setScene(scene);
    this.pointed = "";
    this.draw();
  }

  // States.

  /** @param {ArrayLike<number>} states */
  setStates(states) {
    this.board.setStates(states);
    this.draw();
  }

  /** @param {[number, number][]} changes */
  patch(changes) {
    for (const [node, state] of changes) this.board.setState(node, state);
    if (changes.length > 0) this.draw();
  }

  // The frame.

  resize() {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (width === 0 || height === 0) return;
    this.ratio = Math.min(3, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.port.resize(width, height);
    this.drawNow(performance.now());
  }

  moved() {
    this.tip.hide();
    this.draw();
  }

  recolour() {
    this.palette = readPalette(this.root);
    this.texts.clear();
    this.board.allChanged = true;
    this.draw();
  }

  draw() {
    if (this.frame === 0 && !this.gone) this.frame = requestAnimationFrame((now) => this.drawNow(now));
  }

  /** @param {number} now */
  drawNow(now) {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { board, tools, legend } = this;
    const { camera, width, height } = this.port;
    if (this.gone || board.scene === null || width === 0) return;
    const look = { palette: this.palette, texts: this.texts, ratio: this.ratio };
    const frame = { ctx: this.ctx, board, camera, width, height, ...look };
    const picture = this.heat.update(frame);
    this.detail = drawFrame(frame, this.heat);
    this.minimap.draw(frame, picture, now);
    if (board.changedCount > 0 || board.allChanged) {
      legend.update(board.counts, this.palette.inks);
      tools.update({ failed: board.counts[FAILED], staged: board.scene.staged, open: this.isAllOpen() });
      this.speech.counts(board);
    }
    board.takeChanges();
  }

  // Stages.

  isAllOpen() {
    const { scene } = this.board;
    return scene !== null && !scene.kind.includes(STAGE);
  }

  toggleAll() {
    return this.expandAll(!this.isAllOpen());
  }

  /** @param {boolean} all */
  async expandAll(all) {
    this.expanded.fill(all ? 1 : 0);
    await this.relayout();
    this.port.fit(false);
  }

  /** Expand a stage or collapse it; its corner stays where it is. @param {number} item */
  async toggle(item) {
    const { scene } = this.board;
    if (scene === null || scene.stage[item] < 0) return;
    const stage = scene.stage[item];
    const { scale } = this.port.camera;
    const [x, y] = this.port.toScreen(scene.x[item], scene.y[item]);
    this.expanded[stage] = this.expanded[stage] === 1 ? 0 : 1;
    await this.relayout();
    const after = this.board.scene;
    if (after === null || this.gone) return;
    if (this.port.isFitted) {
      this.port.fit(true);
      return;
    }
    const now = after.stage.indexOf(stage);
    this.port.move({ x: x - after.x[now] * scale, y: y - after.y[now] * scale, scale });
  }

  /** Show the nodes of the stage of a node. @param {number} node */
  async reveal(node) {
    const { scene } = this.board;
    if (scene === null || scene.kind[scene.item[node]] !== STAGE) return;
    this.expanded[this.stageOf[node]] = 1;
    await this.relayout();
  }

  /** Bring a node into view. @param {number} node @param {boolean} smooth */
  bring(node, smooth) {
    const { scene } = this.board;
    if (scene !== null) this.port.bring(nodeBox(scene, node), smooth);
  }

  // Selection.

  /** @param {number | null} node @param {boolean} bring */
  async select(node, bring) {
    const { board } = this;
    board.selected = node;
    board.selectedItem = null;
    if (node === null || node < 0 || node >= board.count) {
      board.selected = null;
      this.draw();
      return;
    }
    await this.reveal(node);
    if (this.gone) return;
    this.speech.say(describe(board, node));
    if (bring) this.bring(node, true);
    else this.draw();
  }

  /** Select as the user does: the page is told. @param {number | null} node @param {boolean} bring */
  choose(node, bring) {
    this.options.onSelect?.(node);
    return this.select(node, bring);
  }

  /** @param {number} item */
  chooseItem(item) {
    const { board } = this;
    const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
    board.selected = null;
    board.selectedItem = item;
    this.speech.say(describeItem(board, item));
    this.port.bring([scene.x[item], scene.y[item], scene.w[item], scene.h[item]], true);
  }

  /** @param {"left" | "right" | "up" | "down"} direction */
  step(direction) {
    const { board } = this;
    const { scene, graph } = board;
    if (scene === null || graph === null || board.count === 0) return;
    if (board.selected === null && board.selectedItem === null) {
      this.land(scene.members[scene.start[scene.inColumn[0]]]);
      return;
    }
    const stage = board.selectedItem;
    if (stage !== null) {
      const next = nextItem(scene, stage, direction);
      if (next >= 0) this.land(scene.members[scene.start[next]]);
      return;
    }
    const next = nextNode(scene, graph, board.selected ?? 0, direction);
    if (next >= 0) this.land(next);
  }

  /** Select a node, or its stage where that is collapsed. @param {number} node */
  land(node) {
    const { scene } = this.board;
    if (scene === null) return;
    if (scene.kind[scene.item[node]] === STAGE) this.chooseItem(scene.item[node]);
    else void this.choose(node, true);
  }

  open() {
    const { selected, selectedItem } = this.board;
    if (selectedItem !== null) void this.toggle(selectedItem);
    else if (selected !== null) this.options.onOpen?.(selected);
  }

  /** Take back search, then selection; true if there was one. */
  clear() {
    if (this.board.matches !== null) this.tools.setSearch("");
    else if (this.board.selected !== null || this.board.selectedItem !== null) void this.choose(null, false);
    else return false;
    return true;
  }

  /** @param {1 | -1} step */
  nextFailure(step) {
    const failed = this.board.failedNodes();
    if (failed.length === 0) {
      this.speech.say("No node has failed.");
      return;
    }
    const { selected } = this.board;
    const at = selected === null ? (step > 0 ? -1 : 0) : failed.findIndex((node) => node >= selected);
    const exact = at >= 0 && failed[at] === selected;
    const from = at < 0 ? (selected === null ? -1 : failed.length) : exact || step < 0 ? at : at - 1;
    void this.choose(failed[(from + step + failed.length) % failed.length], true);
  }

  // Search.

  /** @param {string} text */
  search(text) {
    this.tools.setSearch(text);
    return this.found.length;
  }

  /** @param {string} text @param {number} step */
  searchFor(text, step) {
    if (step === 0 || this.board.matches === null) {
      this.found = this.board.search(text);
      this.foundAt = 0;
    } else if (this.found.length > 0) this.foundAt = (this.foundAt + step + this.found.length) % this.found.length;
    const many = this.found.length;
    const node = this.found[this.foundAt];
    if (many > 0 && step !== 0) void this.choose(node, true);
    else if (many > 0 && !this.found.slice(0, FEW_FOUND).some((one) => this.isSeen(one))) this.bring(node, true);
    this.draw();
    if (text.trim() === "") return "";
    return many === 0 ? "none" : `${formatCount(this.foundAt + 1)} of ${formatCount(many)}`;
  }

  /** @param {number} node */
  isSeen(node) {
    const { scene } = this.board;
    if (scene === null) return false;
    const [left, top, w, h] = nodeBox(scene, node);
    const [x, y] = this.port.toScreen(left + w / 2, top + h / 2);
    return x >= 0 && y >= 0 && x <= this.port.width && y <= this.port.height;
  }

  // The pointer.

  /** @param {number} x @param {number} y */
  at(x, y) {
    const { scene } = this.board;
    if (scene === null) return null;
    const [worldX, worldY] = this.port.toWorld(x, y);
    const hit = hitAt(scene, worldX, worldY);
    return hit === null ? null : { ...hit, isChevron: hit.node < 0 && isOnChevron(scene, hit.item, worldX, worldY) };
  }

  /** @param {number} x @param {number} y */
  hover(x, y) {
    const hit = this.at(x, y);
    const pointed = hit === null ? "" : `${hit.item} ${hit.node}`;
    this.canvas.classList.toggle("is-pointing", hit !== null && (hit.node >= 0 || hit.isChevron || this.board.scene?.kind[hit.item] === STAGE));
    if (pointed !== this.pointed) {
      this.pointed = pointed;
      const isHead = hit !== null && hit.node < 0 && this.board.isGrid(hit.item);
      if (hit === null || isHead) this.board.setReach(null, null);
      else this.board.setReach(hit.node >= 0 ? hit.node : null, hit.item);
      this.draw();
    }
    if (hit === null) this.tip.hide();
    else this.tip.show(this.board, hit, x, y, this.port, this.detail === "cards");
  }

  leave() {
    this.pointed = "";
    this.tip.hide();
    if (this.board.reach === null) return;
    this.board.setReach(null, null);
    this.draw();
  }

  /** @param {number} x @param {number} y */
  press(x, y) {
    const hit = this.at(x, y);
    if (hit === null) void this.choose(null, false);
    else if (hit.node >= 0) void this.choose(hit.node, false);
    else if (hit.isChevron) void this.toggle(hit.item);
    else if (this.board.scene?.kind[hit.item] !== GRID) this.chooseItem(hit.item);
  }

  /** @param {number} x @param {number} y */
  pressTwice(x, y) {
    const hit = this.at(x, y);
    if (hit === null) this.port.zoom(1.6, x, y);
    else if (hit.node >= 0) this.options.onOpen?.(hit.node);
    else if (!hit.isChevron) void this.toggle(hit.item);
  }

  destroy() {
    this.gone = true;
    cancelAnimationFrame(this.frame);
    this.port.close();
    this.layouts.close();
    this.sizes.disconnect();
    this.unwatch();
    this.speech.close();
    this.root.remove();
  }
}

/** @param {"div"} tag @param {string} name */
function made(tag, name) {
  const element = document.createElement(tag);
  element.className = name;
  return element;
}
