// Marks of a time axis, and durations in words. Pure.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((one) => one * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((one) => one * MINUTE),
  ...[1, 2, 3, 6, 12].map((one) => one * HOUR),
  ...[1, 2, 5, 10, 20, 50, 100].map((one) => one * DAY),
];

/**
 * Return round times of a range, so far apart that a label fits between them.
 * @param {number} from
 * @param {number} to
 * @param {number} most
 */
export function ticksOf(from, to, most) {
  const rough = (to - from) / Math.max(1, most);
  const step = STEPS.find((one) => one >= rough) ?? (Math.ceil(rough / (100 * DAY)) || 1) * 100 * DAY;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to && ticks.length < 1000; at += step) ticks.push(at);
  return ticks;
}

/**
 * Return a duration in words: 420 ms, 3.2 s, 4 min 05 s, 2 h 10 min.
 * @param {number} milliseconds
 * @returns {string}
 */
export function duration(milliseconds) {
  if (milliseconds < 0) return `−${duration(-milliseconds)}`;
  if (milliseconds < 10 && milliseconds % 1 !== 0) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 999.5) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < MINUTE - 50) return `${Number((milliseconds / SECOND).toFixed(1))} s`;
  const seconds = Math.round(milliseconds / SECOND);
  const pad = (/** @type {number} */ one) => String(one).padStart(2, "0");
  if (seconds < 3600) return seconds % 60 === 0 ? `${seconds / 60} min` : `${Math.floor(seconds / 60)} min ${pad(seconds % 60)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return minutes % 60 === 0 ? `${minutes / 60} h` : `${Math.floor(minutes / 60)} h ${pad(minutes % 60)} min`;
  const hours = Math.round(minutes / 60);
  return hours % 24 === 0 ? `${hours / 24} d` : `${Math.floor(hours / 24)} d ${pad(hours % 24)} h`;
}
