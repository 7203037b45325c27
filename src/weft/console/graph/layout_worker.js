// Makes the scenes of a large graph beside the page, which stays free meanwhile.

import { modelOf, sceneOf } from "./scene.js";

/** @typedef {{graph: import("./topology.js").Graph, staged: boolean, stages: number}} Opened */

/** @type {import("./scene.js").Model | null} */
let model = null;

/**
 * Return the buffers of all columns of an object, to be handed over and not copied.
 * @param {object} columns
 * @returns {ArrayBuffer[]}
 */
function buffersOf(columns) {
  const buffers = Object.values(columns).filter(ArrayBuffer.isView).map((column) => column.buffer);
  return /** @type {ArrayBuffer[]} */ ([...new Set(buffers)]);
}

/** @param {MessageEvent} event */
function receive({ data }) {
  const post = /** @type {(message: object, transfer: ArrayBuffer[]) => void} */ (self.postMessage.bind(self));
  try {
    if (data.open) {
      const { count, from, to, handler, cardWidth } = data.open;
      model = modelOf(count, from, to, handler, cardWidth);
      const { graph, staged, stages } = model;
      // The page gets copies: the worker goes on with its own.
      const copy = Object.fromEntries(Object.entries(graph).map(([name, one]) => [name, typeof one === "number" ? one : one.slice()]));
      post({ graph: copy, staged, stages: stages.count, of: stages.of.slice() }, buffersOf(copy));
      return;
    }
    if (model === null) return;
    const scene = sceneOf(model, data.expanded);
    // `item` may be a column of the model, which the worker needs again.
    post({ scene }, buffersOf({ ...scene, item: null }));
  } catch (error) {
    post({ failure: String(error) }, []);
  }
}

self.onmessage = receive;
