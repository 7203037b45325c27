// What the home page makes of the overview. No DOM here.

/** @typedef {import("../types").Overview} Overview */
/** @typedef {import("../types").Execution} Execution */
/** @typedef {import("../types").Hour} Hour */

/** How an execution may have ended, from the bottom of a bar to its top. @type {("COMPLETED" | "CANCELLED" | "FAILED")[]} */
export const ENDS = ["COMPLETED", "CANCELLED", "FAILED"];

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
