// What the home page shows, from one call; or from the lists, where the server does not have it. No DOM here.

import { getOverview, listDeadLetters, listExecutions, listQueues, listWorkers } from "../api.js";
import { groupLetters } from "../dead_letters/groups.js";
import { totalsOf } from "../pages/workers.js";
import { asProblem } from "../ui/load.js";

/** @typedef {import("../types").Overview} Overview */
/** @typedef {import("../types").Execution} Execution */
/** @typedef {import("../types").Hour} Hour */

export const HOURS = 24;
const HOUR_MS = 3_600_000;
const LIMIT = 500;
const GROUPS = 10;
/** How an execution may have ended, from the bottom of a bar to its top. @type {("COMPLETED" | "CANCELLED" | "FAILED")[]} */
export const ENDS = ["COMPLETED", "CANCELLED", "FAILED"];

/**
 * Return the last 24 hours, each with the executions that ended and that started in it.
 * @param {Execution[]} executions @param {number} now milliseconds
 * @returns {Hour[]} the oldest first
 */
export function hoursOf(executions, now) {
  const last = Math.floor(now / HOUR_MS);
  const hours = Array.from({ length: HOURS }, (_, i) => ({
    from: new Date((last - HOURS + 1 + i) * HOUR_MS).toISOString(), COMPLETED: 0, FAILED: 0, CANCELLED: 0, started: 0,
  }));
  const hourOf = (/** @type {string | null} */ at) => (at ? hours[Math.floor(Date.parse(at) / HOUR_MS) - last + HOURS - 1] : undefined);
  for (const one of executions) {
    const started = hourOf(one.created_at);
    if (started) started.started += 1;
    const ended = hourOf(one.finished_at);
    if (ended && ENDS.some((end) => end === one.state)) ended[/** @type {"FAILED"} */ (one.state)] += 1;
  }
  return hours;
}

/** Return the sums of all hours. @param {Hour[]} hours */
export function totalOf(hours) {
  const sum = { COMPLETED: 0, FAILED: 0, CANCELLED: 0, started: 0 };
  for (const hour of hours) for (const name of /** @type {(keyof typeof sum)[]} */ (Object.keys(sum))) sum[name] += hour[name];
  return sum;
}

/** True if nothing has ever run, as far as is known. @param {Overview} overview */
export function isEmpty(overview) {
  const known = Object.values(overview.executions).some((count) => count > 0);
  return !known && !overview.dead_letters && !overview.hours.some((hour) => hour.started || ENDS.some((end) => hour[end]));
}

/** Set once a server has answered that it has no overview: it is not asked again. */
let lacksOverview = false;

/**
 * @param {AbortSignal} [signal]
 * @returns {Promise<Overview & {isPartial: boolean}>} `isPartial`: put together of the newest 500 of each list
 */
export async function loadOverview(signal) {
  if (!lacksOverview) {
    try {
      return { ...(await getOverview(signal)), isPartial: false };
    } catch (error) {
      if (!asProblem(error).isMissing) throw error;
      lacksOverview = true;
    }
  }
  const [newest, active, letters, workers, queues] = await Promise.all([
    listExecutions({ limit: LIMIT }, signal),
    listExecutions({ state: ["PENDING", "RUNNING", "PAUSED"], limit: LIMIT }, signal),
    listDeadLetters({ state: "open", limit: LIMIT }, signal),
    listWorkers(signal),
    listQueues(signal),
  ]);
  /** @type {Record<string, number>} */
  const executions = {};
  const known = new Map([...newest.items, ...active.items].map((one) => [one.id, one]));
  for (const one of known.values()) executions[one.state] = (executions[one.state] ?? 0) + 1;
  const { alive, slots, running } = totalsOf(workers.items);
  return {
    executions,
    hours: hoursOf(newest.items, Date.now()),
    failures: groupLetters(letters.items).slice(0, GROUPS),
    dead_letters: letters.items.length,
    workers: { alive, slots, running },
    queues: queues.items,
    isPartial: [newest, active, letters].some((page) => page.next_cursor !== null),
  };
}
