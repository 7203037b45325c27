// Retry or drop dead letters: one, a group, or all. Each asks first, and says of how many.

import { changeDeadLetters, dropDeadLetter, retryDeadLetter } from "../api.js";
import { forEach, showRefused } from "../executions/bulk.js";
import { confirm } from "../ui/dialog.js";
import { asProblem } from "../ui/load.js";
import { html } from "../ui/preact.js";
import { formatCount } from "../ui/time.js";
import { say, sayProblem } from "../ui/toast.js";
import { lettersText } from "./groups.js";

/** @typedef {import("../types").DeadLetter} DeadLetter */

/**
 * What is to be changed: the open letters that a body of the call names, or the ones given, where the server has no
 * such call, or there is one.
 * @typedef {{
 *   count: number, executions: number, atLeast?: boolean, letters?: DeadLetter[],
 *   which?: {workflow?: string | null, node?: string, code?: string | null}, where?: any,
 * }} Chosen
 */

const WORDS = {
  retry: { verb: "Retry", done: "retried" },
  drop: { verb: "Drop", done: "dropped" },
};

/**
 * Ask, and do it; true: something was changed.
 * @param {"retry" | "drop"} what @param {Chosen} chosen
 */
export async function changeLetters(what, chosen) {
  const { verb, done } = WORDS[what];
  const text = lettersText(chosen.count, chosen.atLeast);
  const agreed = await confirm({
    title: `${verb} ${text}?`,
    body: html`${chosen.where && html`<p class="break">${chosen.where}</p>`}<p>${what === "retry" ? retryText(chosen) : DROP_TEXT}</p>`,
    verb: `${verb} ${text}`,
    danger: what === "drop",
  });
  if (!agreed) return false;
  const progress = { done: 0, refused: 0, told: /** @type {{id: string, message: string}[]} */ ([]) };
  try {
    if (chosen.letters) await changeEach(what, chosen.letters, progress);
    else await changeMatching(what, chosen.which ?? {}, progress);
  } catch (error) {
    sayProblem(error, progress.done ? `${lettersText(progress.done)} ${done}, then` : `Not ${done}`);
    return progress.done > 0;
  }
  if (progress.refused) showRefused(`${formatCount(progress.done)} ${done}, ${formatCount(progress.refused)} refused`, progress.told);
  else say(`${lettersText(progress.done)} ${done}.`);
  return progress.done > 0;
}

const DROP_TEXT = "Nobody will be asked about them again. Their executions stay as they are, and may still be retried.";

/** @param {Chosen} chosen */
function retryText({ executions, atLeast }) {
  if (executions === 1 && !atLeast) return "Its execution opens the next generation: what did not complete runs again, what completed is kept.";
  const count = `${atLeast ? "at least " : ""}${formatCount(executions)}`;
  return `Each of ${count} executions opens its next generation: what did not complete runs again, what completed is kept.`;
}

/** @typedef {{done: number, refused: number, told: {id: string, message: string}[]}} Progress */

/**
 * Change what a body names, a page a call. Letters that come meanwhile are newer than the first page, and stay.
 * @param {"retry" | "drop"} what @param {Record<string, any>} which @param {Progress} progress
 */
async function changeMatching(what, which, progress) {
  let cursor = null;
  do {
    const answer = await changeDeadLetters(what, cursor ? { ...which, cursor } : which);
    progress.done += answer.done;
    progress.refused += answer.matched - answer.done;
    progress.told.push(...answer.refused);
    cursor = answer.next_cursor ?? null;
  } while (cursor);
}

/** @param {"retry" | "drop"} what @param {DeadLetter[]} letters @param {Progress} progress */
async function changeEach(what, letters, progress) {
  const chosen = what === "retry" ? onePerExecution(letters) : letters;
  const { done, refused } = await forEach(chosen, (letter) => (what === "retry" ? retryDeadLetter(letter.id) : dropDeadLetter(letter.id)));
  progress.done = what === "retry" ? letters.length - refused.length : done;
  progress.refused = refused.length;
  progress.told = refused.map(({ item, message }) => ({ id: item.id, message }));
  if (!done && refused.length === 1) throw asProblem(new Error(refused[0].message));
}

/** Return a letter of each execution: a retry opens all of its letters' nodes. @param {DeadLetter[]} letters */
export function onePerExecution(letters) {
  return [...new Map(letters.map((letter) => [letter.execution, letter])).values()];
}
