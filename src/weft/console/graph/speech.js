// What a screen reader says of the drawing: its numbers as the name of the canvas, and what is selected as it changes.

import { formatCount } from "../ui/time.js";
import { BY_WEIGHT, STATES, STATE_COUNT } from "./palette.js";

const PERIOD_MS = 2000;
const KEYS =
  "Arrow keys follow dependencies and neighbours, Enter opens, n goes to the next failure, f fits, plus and minus zoom. " +
  "The table of nodes shows the same.";

/** @typedef {import("./board.js").Board} Board */

/** @param {number} count @param {string} noun */
const counted = (count, noun) => `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Return the states and their numbers in words. @param {ArrayLike<number>} counts */
export function statesInWords(counts) {
  return BY_WEIGHT.filter((state) => counts[state] > 0)
    .map((state) => `${formatCount(counts[state])} ${STATES[state].word}`)
    .join(", ");
}

/** Return what a node is and what it depends on. @param {Board} board @param {number} node */
export function describe(board, node) {
  const state = board.hasStates ? STATES[board.states[node]].word : "";
  const { graph } = board;
  const parents = graph === null ? 0 : graph.parentStart[node + 1] - graph.parentStart[node];
  const children = graph === null ? 0 : graph.childStart[node + 1] - graph.childStart[node];
  const handler = board.handlers[board.handler[node]] ?? "";
  const ways = [parents > 0 ? `after ${counted(parents, "node")}` : "", children > 0 ? `before ${counted(children, "node")}` : ""];
  return [board.ids[node], state, handler, ...ways].filter((part) => part !== "").join(", ");
}

/** Return what a stage holds. @param {Board} board @param {number} item */
export function describeItem(board, item) {
  const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
  const counts = board.itemCounts.subarray(item * STATE_COUNT, (item + 1) * STATE_COUNT);
  const many = scene.start[item + 1] - scene.start[item];
  const states = board.hasStates ? `: ${statesInWords(counts)}` : "";
  return `Stage ${board.itemNames[item]}, ${counted(many, "node")}${states}. Enter expands it.`;
}

export class Speech {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.element = document.createElement("div");
    this.element.className = "weft-graph-live";
    this.element.setAttribute("aria-live", "polite");
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-roledescription", "graph");
    canvas.setAttribute("aria-label", "Graph");
    this.timer = 0;
  }

  /** Keep the numbers in the name of the canvas up to date, but not with every frame. @param {Board} board */
  counts(board) {
    if (this.timer !== 0) return;
    const write = () => {
      const stages = board.scene?.staged ? ` in ${counted(board.scene.items, "stage")}` : "";
      const states = board.hasStates ? `: ${statesInWords(board.counts)}` : "";
      const text = `Graph of ${counted(board.count, "node")}${stages}${states}. ${KEYS}`;
      if (this.canvas.getAttribute("aria-label") !== text) this.canvas.setAttribute("aria-label", text);
    };
    write();
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      write();
    }, PERIOD_MS);
  }

  /** @param {string} text */
  say(text) {
    this.element.textContent = text;
  }

  close() {
    clearTimeout(this.timer);
  }
}
