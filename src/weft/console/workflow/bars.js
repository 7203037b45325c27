// The last executions as bars, the newest at the right: a height says how long one took, a colour and a sign how it ended.

import { html } from "../ui/preact.js";
import { href, to } from "../ui/router.js";
import { stateOf } from "../ui/states.js";
import { formatSeconds } from "../ui/time.js";

/** @typedef {import("../types").Recent} Recent */

const SHORTEST = 20;

/**
 * Return the heights of bars in percent. One that is not over yet stands half as high as the longest.
 * @param {Pick<Recent, "seconds">[]} recent
 */
export function heightsOf(recent) {
  const longest = Math.max(0, ...recent.map((one) => one.seconds ?? 0));
  return recent.map((one) => (one.seconds === null ? 50 : longest ? Math.max(SHORTEST, Math.round((100 * one.seconds) / longest)) : 100));
}

/** Return what bars show, in words: "18 completed, 2 failed". @param {Pick<Recent, "state">[]} recent */
export function inWords(recent) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { state } of recent) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, count]) => `${count} ${stateOf(state).word}`).join(", ");
}

/** Return a share as percent; only what is whole is 100 %. @param {number | null | undefined} rate of 1 */
export function share(rate) {
  if (rate === null || rate === undefined) return "–";
  return `${rate < 1 ? Math.min(99.9, Math.round(rate * 1000) / 10) : 100} %`;
}

/**
 * Small bars for a row of a list, or large ones whose every bar leads to its execution.
 * @param {{recent: Recent[], most: number, large?: boolean}} props `recent`: newest first
 */
export function Bars({ recent, most, large = false }) {
  const shown = recent.slice(0, most).reverse();
  if (!shown.length) return html`<span class="muted">never ran</span>`;
  const heights = heightsOf(shown);
  if (!large) {
    return html`<span class="bars" role="img" aria-label=${`Last executions: ${inWords(shown)}`} title=${inWords(shown)}>
      ${shown.map((one, i) => html`<span key=${one.id} class=${`bar fill-${stateOf(one.state).css}`} style=${{ height: `${heights[i]}%` }}></span>`)}
    </span>`;
  }
  return html`<ol class="bars bars-large" aria-label="Last executions, the newest at the end">
    ${shown.map((one, i) => {
      const state = stateOf(one.state);
      const said = `${state.word}, ${one.seconds === null ? "not over yet" : formatSeconds(one.seconds)}`;
      return html`<li key=${one.id}><a class="bar-link" href=${href(to("executions", one.id))} title=${said} aria-label=${said}>
        <span class="bar-room"><span class=${`bar fill-${state.css}`} style=${{ height: `${heights[i]}%` }}></span></span>
        <span class=${`bar-sign state-${state.css}`} aria-hidden="true">${state.sign}</span>
      </a></li>`;
    })}
  </ol>`;
}
