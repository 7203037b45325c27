// What is known of a question: a node that waits for an answer, or did. No DOM here.

import { getNode, listWaits } from "../api.js";

/** @typedef {import("../types").Wait} Wait */
/** @typedef {import("../types").NodeDetail} NodeDetail */
/** @typedef {import("../ui/schema_shape.js").Shape} Shape */

const PAGE = 500;
const REJECTS = /^(no|not|false|(reject|den|declin|refus|stop|cancel).*)\b/i;

/** What tells a question from all others. @param {Wait} wait */
export const keyOf = ({ execution, node }) => `${execution}/${node}`;

/**
 * Return the open question of a node; null: it asks none now.
 * @param {string} execution @param {string} node @param {AbortSignal} [signal] @returns {Promise<Wait | null>}
 */
export async function findWait(execution, node, signal) {
  /** @type {string | null} */
  let cursor = null;
  do {
    const page = await listWaits({ execution, limit: PAGE, cursor }, signal);
    const found = page.items.find((one) => one.node === node);
    if (found) return found;
    cursor = page.next_cursor;
  } while (cursor);
  return null;
}

/**
 * Return the open question of a node, or what became of it.
 * @param {string} execution @param {string} node @param {AbortSignal} [signal]
 * @returns {Promise<{wait: Wait | null, detail: NodeDetail | null}>}
 */
export async function loadQuestion(execution, node, signal) {
  const wait = await findWait(execution, node, signal);
  return { wait, detail: wait ? null : await getNode(execution, node, signal) };
}

/**
 * Return the few answers of a question as options, in the order of its schema; null: it has a form.
 * @param {Shape} shape @returns {{draft: string, name: string}[] | null}
 */
export function optionsOf(shape) {
  if (shape.kind === "boolean") return [{ draft: "true", name: "yes" }, { draft: "false", name: "no" }];
  if (shape.kind !== "choice" || shape.choices.length > 9) return null;
  return shape.choices.map(({ name }, i) => ({ draft: String(i), name }));
}

/**
 * Return the key of each option: `a` approves and `x` rejects where there are two, else they are numbered. The first
 * of two approves, unless its name rejects and the other's does not.
 * @param {{name: string}[]} options @returns {string[]}
 */
export function keysOf(options) {
  if (options.length !== 2) return options.map((_, i) => String(i + 1));
  const [first, second] = options.map(({ name }) => REJECTS.test(name));
  return first && !second ? ["x", "a"] : ["a", "x"];
}

/**
 * Return how a wait ended; null: it has not, or it was for a time.
 * @param {import("../types").Node | null | undefined} node @returns {{value: any, by: string | null, at: string, expired: boolean} | null}
 */
export function answerOf(node) {
  const output = node?.handler === "wait" && node.state === "COMPLETED" ? node.output : null;
  return output && (output.value !== null || output.by !== null || output.expired) ? output : null;
}
