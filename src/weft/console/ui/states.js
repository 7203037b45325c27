// The states: their codes, letters, signs and words, the same everywhere. A state is never shown by colour alone.

import { html } from "./preact.js";

/**
 * @typedef {object} StateKind
 * @property {number} code the byte of the state in `Uint8Array`s
 * @property {string} letter the letter of the state in the API's compact answers
 * @property {string} name the API's word
 * @property {string} word what people read
 * @property {string} sign
 * @property {string} css the end of `--state-…` and of the class `state-…`
 */

/** @type {StateKind[]} */
export const STATES = [
  { code: 0, letter: "P", name: "PENDING", word: "pending", sign: "○", css: "pending" },
  { code: 1, letter: "Q", name: "QUEUED", word: "queued", sign: "⋯", css: "queued" },
  { code: 2, letter: "R", name: "RUNNING", word: "running", sign: "◐", css: "running" },
  { code: 3, letter: "C", name: "COMPLETED", word: "completed", sign: "✓", css: "completed" },
  { code: 4, letter: "F", name: "FAILED", word: "failed", sign: "✕", css: "failed" },
  { code: 5, letter: "S", name: "SKIPPED", word: "skipped", sign: "–", css: "skipped" },
  { code: 6, letter: "X", name: "CANCELLED", word: "cancelled", sign: "⊘", css: "cancelled" },
  { code: 7, letter: "T", name: "RETRY", word: "retry scheduled", sign: "↻", css: "retry" },
  { code: 8, letter: "W", name: "WAITING", word: "waiting", sign: "☰", css: "waiting" },
];

/** States that only executions and attempts have. @type {StateKind[]} */
const MORE = [
  { code: -1, letter: "", name: "LOST", word: "lost", sign: "?", css: "cancelled" },
  { code: -1, letter: "", name: "POLLED", word: "looked", sign: "↻", css: "waiting" },
  { code: -1, letter: "", name: "PAUSED", word: "paused", sign: "‖", css: "paused" }];

const BY_NAME = new Map([...STATES, ...MORE].map((state) => [state.name, state]));
const BY_LETTER = new Map(STATES.map((state) => [state.letter, state.code]));
const UNKNOWN = { code: -1, letter: "", name: "", word: "unknown", sign: "?", css: "pending" };

export const EXECUTION_STATES = ["PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"];

/** True if nothing more happens to an execution in this state, unless it is retried. @param {string} name */
export function isTerminal(name) {
  return name === "COMPLETED" || name === "FAILED" || name === "CANCELLED";
}

/** True if a node in this state is settled. @param {string} name */
export function isSettled(name) {
  return isTerminal(name) || name === "SKIPPED";
}

/** @param {string} name @returns {StateKind} */
export function stateOf(name) {
  return BY_NAME.get(name) ?? { ...UNKNOWN, name, word: String(name ?? "unknown").toLowerCase() };
}

/** Count the nodes of each state by its name. @param {Uint8Array} states */
export function countsOf(states) {
  const counts = new Array(STATES.length).fill(0);
  for (const code of states) counts[code] += 1;
  return Object.fromEntries(STATES.map(({ code, name }) => [name, counts[code]]));
}

/** @param {string} letter */
export function codeOfLetter(letter) {
  return BY_LETTER.get(letter) ?? 0;
}

/**
 * Return the codes of a text of letters, one for each node.
 * @param {string} letters
 */
export function codesOfLetters(letters) {
  return Uint8Array.from(letters, codeOfLetter);
}

/**
 * A state as sign and word. `brief`: the sign alone is seen, the word is read out.
 * @param {{name?: string, code?: number, brief?: boolean, title?: string}} props
 */
export function State({ name, code, brief = false, title }) {
  const state = code === undefined ? stateOf(name ?? "") : (STATES[code] ?? UNKNOWN);
  return html`<span class=${`state state-${state.css}`} title=${title ?? (brief ? state.word : null)}>
    <span class="state-sign" aria-hidden="true">${state.sign}</span>
    <span class=${brief ? "sr-only" : "state-word"}>${state.word}</span>
  </span>`;
}
