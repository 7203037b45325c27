// How the last quarter of an hour went, as far as this page has seen it: executions that end, and the longest wait.

import { html, useEffect } from "../ui/preact.js";
import { formatCount, formatSeconds } from "../ui/time.js";
import { ENDS, totalOf } from "./overview.js";

/** @typedef {{at: number, ended: number, waited: number}} Sample milliseconds; executions of the day; seconds */

const SPAN_MS = 900_000;
/** Kept while other pages are shown. @type {Sample[]} */
const samples = [];

/** @param {import("../types").Overview} overview @param {number} at @returns {Sample} */
export function sampleOf(overview, at) {
  const day = totalOf(overview.hours);
  return {
    at,
    ended: ENDS.reduce((sum, end) => sum + day[end], 0),
    waited: Math.max(0, ...overview.queues.map((queue) => queue.oldest_age_seconds ?? 0)),
  };
}

/**
 * Return how many executions ended a minute between each sample and the one before. The sum of a day falls when its
 * oldest hour leaves it.
 * @param {Sample[]} all
 */
export function ratesOf(all) {
  return all.slice(1).map(({ at, ended }, i) => Math.max(0, ((ended - all[i].ended) * 60_000) / Math.max(1, at - all[i].at)));
}

/**
 * Return the points of a line in a box of 100 by 20, the present at the right.
 * @param {Sample[]} all @param {number[]} values of the last samples
 */
export function pointsOf(all, values) {
  const most = Math.max(...values, 1e-9);
  const shown = all.slice(all.length - values.length);
  const now = all[all.length - 1]?.at ?? 0;
  const span = Math.max(60_000, now - (all[0]?.at ?? 0));
  return shown.map(({ at }, i) => `${(100 - ((now - at) / span) * 100).toFixed(2)},${(19 - (values[i] / most) * 18).toFixed(2)}`).join(" ");
}

/** @param {{overview: import("../types").Overview}} props */
export function Trend({ overview }) {
  useEffect(() => {
    const now = Date.now();
    samples.push(sampleOf(overview, now));
    while (samples[0].at < now - SPAN_MS) samples.shift();
  }, [overview]);
  const rates = ratesOf(samples);
  const waits = samples.map((one) => one.waited);
  return html`<${Line} name="Ended per minute" values=${rates} text=${formatCount} /><${Line} name="Longest wait in a queue" values=${waits} text=${formatSeconds} />`;
}

/** @param {{name: string, values: number[], text: (value: number) => string}} props */
function Line({ name, values, text }) {
  if (!values.length) return null;
  const now = text(values[values.length - 1]);
  const most = `at most ${text(Math.max(...values))}`;
  return html`<div class="trend">
    <span>${name}</span><span class="number nowrap"><strong>${now}</strong> <span class="muted small">${most}</span></span>
    <svg role="img" aria-label=${`${name} in the last minutes: ${now}, ${most}`} viewBox="0 0 100 20" preserveAspectRatio="none"><polyline points=${pointsOf(samples, values)} /></svg>
  </div>`;
}
