// Cancel or retry many executions: one call each, a few at a time, and the refused ones are told.

import { cancelExecution, retryExecution } from "../api.js";
import { Dialog, confirm, openDialog } from "../ui/dialog.js";
import { html } from "../ui/preact.js";
import { isTerminal } from "../ui/states.js";
import { say } from "../ui/toast.js";

const AT_ONCE = 4;

/** @typedef {import("../types").Execution} Execution */

/** True if a retry may be asked for. @param {Execution} row */
export const mayRetry = (row) => row.state === "FAILED" || row.state === "CANCELLED";
/** True if there is something to cancel. @param {Execution} row */
export const mayCancel = (row) => !isTerminal(row.state);

/**
 * Do one thing to each, a few at a time.
 * @template T
 * @param {T[]} items @param {(item: T) => Promise<unknown>} act
 * @returns {Promise<{done: number, refused: {item: T, message: string}[]}>}
 */
export async function forEach(items, act) {
  const waiting = [...items];
  /** @type {{item: T, message: string}[]} */
  const refused = [];
  let done = 0;
  const worker = async () => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) {
      try {
        await act(item);
        done += 1;
      } catch (error) {
        refused.push({ item, message: error instanceof Error ? error.message : String(error) });
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return { done, refused };
}

/**
 * Ask, and do it; true: something was done.
 * @param {"cancel" | "retry"} what @param {Execution[]} rows
 */
export async function bulk(what, rows) {
  const fitting = rows.filter(what === "cancel" ? mayCancel : mayRetry);
  if (!fitting.length) {
    say(what === "cancel" ? "None of these is running." : "None of these has failed or was cancelled.");
    return false;
  }
  const count = `${fitting.length} ${fitting.length === 1 ? "execution" : "executions"}`;
  const others = rows.length - fitting.length;
  const agreed = await confirm({
    title: what === "cancel" ? `Cancel ${count}?` : `Retry ${count}?`,
    body: html`<p>${
      what === "cancel"
        ? "Every node that is not settled is cancelled, and no attempt starts any more."
        : "Each opens its next generation: what did not complete runs again, what completed is kept."
    }</p>${others > 0 && html`<p class="muted">${`${others} others are left as they are.`}</p>`}`,
    verb: what === "cancel" ? `Cancel ${count}` : `Retry ${count}`,
    danger: what === "cancel",
  });
  if (!agreed) return false;
  const { done, refused } = await forEach(fitting, (row) => (what === "cancel" ? cancelExecution(row.id) : retryExecution(row.id)));
  const verb = what === "cancel" ? "cancelled" : "retried";
  if (!refused.length) say(`${done} ${done === 1 ? "execution" : "executions"} ${verb}.`);
  else showRefused(`${done} ${verb}, ${refused.length} refused`, refused.map(({ item, message }) => ({ id: item.id, message })));
  return done > 0;
}

/** @param {string} title @param {{id: string, message: string}[]} refused */
export function showRefused(title, refused) {
  openDialog((close) => html`<${Dialog} title=${title} wide onClose=${close} footer=${html`<button onClick=${() => close()}>Close</button>`}>
    <ul class="stack">${refused.slice(0, 100).map((one) => html`<li class="break"><code>${one.id}</code> ${one.message}</li>`)}</ul>
  </${Dialog}>`);
}
