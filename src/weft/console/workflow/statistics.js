// How the last executions of a workflow went: from the server's statistics, or counted here where it has none.

import { getStatistics, listExecutions } from "../api.js";
import { asProblem } from "../ui/load.js";
import { isTerminal } from "../ui/states.js";
import { secondsBetween } from "../ui/time.js";

/** @typedef {import("../types").Statistics} Statistics */

const COUNTED = 50;
let serverCounts = true;

/**
 * Return the statistics of a workflow, of one version or of all.
 * @param {string} name @param {string | number | undefined} version @param {AbortSignal} [signal]
 * @returns {Promise<Statistics>}
 */
export async function statisticsOf(name, version, signal) {
  if (serverCounts) {
    try {
      return await getStatistics(name, version, signal);
    } catch (error) {
      if (!asProblem(error).isMissing) throw error;
      serverCounts = false;
    }
  }
  const { items } = await listExecutions({ workflow: name, version, limit: COUNTED }, signal);
  return countStatistics(items);
}

/**
 * Return the statistics of executions, as the server would for these alone.
 * @param {Pick<import("../types").Execution, "id" | "state" | "started_at" | "finished_at">[]} executions newest first
 * @returns {Statistics}
 */
export function countStatistics(executions) {
  const recent = executions.map(({ id, state, started_at, finished_at }) => ({
    id, state, started_at, finished_at,
    seconds: started_at && finished_at ? Math.max(0, secondsBetween(started_at, finished_at)) : null,
  }));
  const ended = recent.filter((one) => isTerminal(one.state));
  const completed = ended.filter((one) => one.state === "COMPLETED");
  const seconds = completed.flatMap((one) => (one.seconds === null ? [] : [one.seconds])).sort((a, b) => a - b);
  const sum = seconds.reduce((total, one) => total + one, 0);
  return {
    recent,
    seconds: { p50: quantile(seconds, 0.5), p95: quantile(seconds, 0.95), mean: seconds.length ? sum / seconds.length : null },
    success_rate: ended.length ? completed.length / ended.length : null,
  };
}

/** @param {number[]} sorted @param {number} share */
function quantile(sorted, share) {
  return sorted.length ? sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] : null;
}

/** Return a share as percent; only what is whole is 100 %. @param {number | null | undefined} rate of 1 */
export function share(rate) {
  if (rate === null || rate === undefined) return "–";
  return `${rate < 1 ? Math.min(99.9, Math.round(rate * 1000) / 10) : 100} %`;
}
