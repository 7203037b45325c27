// Where scenes come from: made on the page for small graphs, in a worker for large ones.

import { modelOf, sceneOf } from "./scene.js";

const WORKER_ABOVE = 5000;
const LETTER_WIDTH = 7.6;
const LEAST_WIDTH = 156;
const MOST_WIDTH = 236;

/** @typedef {import("./scene.js").Scene} Scene */
/** @typedef {import("./board.js").Topology} Topology */
/** `stageOf` is the stage of each node. @typedef {{graph: import("./topology.js").Graph, staged: boolean, stages: number, stageOf: Int32Array}} Opened */

/**
 * Return the width of a card: what the ids need, within bounds.
 * @param {string[]} ids
 */
export function cardWidthOf(ids) {
  let longest = 0;
  for (const id of ids) longest = Math.max(longest, id.length);
  return Math.min(MOST_WIDTH, Math.max(LEAST_WIDTH, 46 + longest * LETTER_WIDTH));
}

/** Scenes of one graph. A scene that is asked for while another is made replaces it. */
export class Layouts {
  /** @param {Topology} topology */
  constructor(topology) {
    this.topology = topology;
    this.cardWidth = cardWidthOf(topology.nodes);
    /** @type {Worker | null} */
    this.worker = null;
    /** @type {import("./scene.js").Model | null} */
    this.model = null;
    /** @type {((answer: any) => void)[]} */
    this.waiting = [];
  }

  /** Return the adjacency of the graph. @returns {Promise<Opened>} */
  async open() {
    const { nodes, from, to, handler } = this.topology;
    if (nodes.length > WORKER_ABOVE && typeof Worker !== "undefined") {
      try {
        return await this.openInWorker();
      } catch {
        // Without a worker (an old browser, a page from a file) the page makes the layout.
        this.close();
      }
    }
    this.model = modelOf(nodes.length, from, to, handler, this.cardWidth);
    const { graph, staged, stages } = this.model;
    return { graph, staged, stages: stages.count, stageOf: stages.of };
  }

  /** @returns {Promise<Opened>} */
  async openInWorker() {
    const { nodes, from, to, handler } = this.topology;
    const worker = new Worker(new URL("./layout_worker.js", import.meta.url), { type: "module" });
    this.worker = worker;
    const columns = { from: Int32Array.from(from), to: Int32Array.from(to), handler: Int32Array.from(handler) };
    const open = { count: nodes.length, ...columns, cardWidth: this.cardWidth };
    worker.onmessage = ({ data }) => this.waiting.shift()?.(data);
    const failed = new Promise((_, reject) => (worker.onerror = () => reject(new Error("no worker"))));
    const answered = this.ask({ open }, [columns.from.buffer, columns.to.buffer, columns.handler.buffer]);
    const answer = await Promise.race([answered, failed]);
    if (answer.failure) throw new Error(answer.failure);
    return { graph: answer.graph, staged: answer.staged, stages: answer.stages, stageOf: answer.of };
  }

  /**
   * @param {object} message
   * @param {ArrayBuffer[]} transfer
   * @returns {Promise<any>}
   */
  ask(message, transfer = []) {
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      this.worker?.postMessage(message, transfer);
    });
  }

  /**
   * Return the scene with these stages expanded.
   * @param {Uint8Array} expanded
   * @returns {Promise<Scene>}
   */
  async scene(expanded) {
    if (this.model !== null) return sceneOf(this.model, expanded);
    const { scene, failure } = await this.ask({ expanded });
    if (failure) throw new Error(failure);
    return scene;
  }

  close() {
    this.worker?.terminate();
    this.worker = null;
    this.waiting = [];
  }
}
