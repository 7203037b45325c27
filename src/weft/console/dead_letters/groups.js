// Dead letters of one workflow, node and error are a group: one cause, and one decision. No DOM here.

import { listDeadLetterGroups, listDeadLetters } from "../api.js";
import { formatCount } from "../ui/time.js";

/** @typedef {import("../types").DeadLetter} DeadLetter */
/** @typedef {import("../types").LetterGroup} LetterGroup */

export const LETTER_STATES = ["open", "retried", "handled", "dropped"];

// The server counts no further.
const MOST_COUNTED = 10_000;
const PAGE = 200;
const PLAIN_LIMIT = 500;

/** Return what names a group in the address. @param {{workflow: string | null, node: string, code: string | null}} group */
export function keyOf(group) {
  return JSON.stringify([group.workflow, group.node, group.code]);
}

/** True if a letter is one of a group. @param {DeadLetter} letter @param {LetterGroup} group */
export function belongs(letter, group) {
  return keyOf({ workflow: letter.workflow, node: letter.node, code: letter.error?.code ?? null }) === keyOf(group);
}

/**
 * Group letters as the server does; each group keeps its letters.
 * @param {DeadLetter[]} letters newest first
 * @returns {LetterGroup[]} the group of the newest letter first
 */
export function groupLetters(letters) {
  /** @type {Map<string, DeadLetter[]>} */
  const byKey = new Map();
  for (const letter of letters) {
    const key = keyOf({ workflow: letter.workflow, node: letter.node, code: letter.error?.code ?? null });
    const known = byKey.get(key);
    if (known) known.push(letter);
    else byKey.set(key, [letter]);
  }
  return [...byKey.values()].map((same) => ({
    workflow: same[0].workflow,
    node: same[0].node,
    code: same[0].error?.code ?? null,
    count: same.length,
    executions: new Set(same.map((letter) => letter.execution)).size,
    first_at: same[same.length - 1].created_at,
    last_at: same[0].created_at,
    sample: same[0],
    letters: same,
  }));
}

/** Return groups with the one that failed last first. @param {LetterGroup[]} groups */
export function newestFirst(groups) {
  return [...groups].sort((a, b) => (a.last_at < b.last_at ? 1 : a.last_at > b.last_at ? -1 : 0));
}

/**
 * Return the letters, executions and whether there are more, of groups together.
 * @param {LetterGroup[]} groups @param {boolean} more
 */
export function sumOf(groups, more) {
  return {
    count: groups.reduce((sum, group) => sum + group.count, 0),
    executions: groups.reduce((sum, group) => sum + group.executions, 0),
    atLeast: more || groups.some((group) => group.count >= MOST_COUNTED),
  };
}

/** Return "1 dead letter", "at least 10 000 dead letters". @param {number} count @param {boolean} [atLeast] */
export function lettersText(count, atLeast = false) {
  return `${atLeast ? "at least " : ""}${formatCount(count)} ${count === 1 && !atLeast ? "dead letter" : "dead letters"}`;
}

/** Return the first line of a text, cut to a length. @param {string} text @param {number} [length] */
export function firstLine(text, length = 300) {
  const line = text.split("\n").find((one) => one.trim()) ?? "";
  return line.length > length ? `${line.slice(0, length)}…` : line;
}

/**
 * Return groups, as the server counts them. Those of a search are of the newest letters that have its text.
 * @param {{state: string, workflow: string | null, q?: string | null, wanted: number}} which
 * @param {AbortSignal} [signal]
 * @returns {Promise<{groups: LetterGroup[], more: boolean, isPlain: boolean}>}
 */
export async function loadGroups({ state, workflow, q, wanted }, signal) {
  if (!q) return readGroups({ state, workflow, wanted }, signal);
  const page = await listDeadLetters({ state, workflow, q, limit: PLAIN_LIMIT }, signal);
  return { groups: groupLetters(page.items), more: page.next_cursor !== null, isPlain: true };
}

/** @param {{state: string, workflow: string | null, wanted: number}} which @param {AbortSignal} [signal] */
async function readGroups({ state, workflow, wanted }, signal) {
  /** @type {LetterGroup[]} */
  const groups = [];
  let cursor = null;
  do {
    const page = await listDeadLetterGroups({ state, workflow, limit: Math.min(PAGE, wanted - groups.length), cursor }, signal);
    groups.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && groups.length < wanted);
  return { groups: newestFirst(groups), more: cursor !== null, isPlain: false };
}
