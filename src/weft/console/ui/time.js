// Times and durations as text, and components that keep them up to date.

import { clockOffsetMs } from "../api.js";
import { html, useEffect, useState } from "./preact.js";

const UNITS = /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]);

/**
 * Return a duration in at most two units: `0.42 s`, `12.3 s`, `4 min 10 s`, `3 d 4 h`.
 * @param {number | null | undefined} seconds
 */
export function formatSeconds(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const sign = seconds < 0 ? "−" : "";
  let rest = Math.abs(seconds);
  if (rest < 0.001) return "0 s";
  if (rest < 1) return `${sign}${Math.round(rest * 1000)} ms`;
  if (rest < 60) return `${sign}${rest < 9.95 ? rest.toFixed(1) : Math.round(rest)} s`;
  rest = Math.round(rest);
  const first = UNITS.findIndex(([, size]) => rest >= size);
  const [unit, size] = UNITS[first];
  const [smaller, smallerSize] = UNITS[first + 1] ?? ["", 1];
  const left = Math.floor((rest % size) / smallerSize);
  return `${sign}${Math.floor(rest / size)} ${unit}${smaller && left ? ` ${left} ${smaller}` : ""}`;
}

/** Return the seconds between two times of the API. @param {string} from @param {string | number} until */
export function secondsBetween(from, until) {
  return ((typeof until === "number" ? until : Date.parse(until)) - Date.parse(from)) / 1000;
}

/**
 * Return how long ago a time was, or how far ahead it is.
 * @param {string} at @param {number} [now] milliseconds
 */
export function formatAgo(at, now = Date.now()) {
  const seconds = (now - Date.parse(at)) / 1000;
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < -1) return `in ${coarse(-seconds)}`;
  return seconds < 2 ? "just now" : `${coarse(seconds)} ago`;
}

/** @param {number} seconds */
function coarse(seconds) {
  const [unit, size] = UNITS.find(([, one]) => seconds >= one) ?? ["s", 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** Return a time in full, in the reader's zone. @param {string | number} at */
export function formatTime(at) {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return "–";
  /** @param {number} value @param {number} [width] */
  const pad = (value, width = 2) => String(value).padStart(width, "0");
  const day = `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
  return `${day} ${formatClock(time)}`;
}

/** Return the time of day with milliseconds. @param {string | number | Date} at */
export function formatClock(at) {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return "–";
  /** @param {number} value @param {number} [width] */
  const pad = (value, width = 2) => String(value).padStart(width, "0");
  const clock = `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
  return `${clock}.${pad(time.getMilliseconds(), 3)}`;
}

/**
 * Return the present, and draw again every so often while the page is seen.
 * @param {number} [every] milliseconds @param {boolean} [runs]
 */
export function useNow(every = 1000, runs = true) {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    if (!runs) return undefined;
    setNow(serverNow());
    return onTick(every, setNow);
  }, [every, runs]);
  return now;
}

/** One timer for all that draw at the same pace. @type {Map<number, {listeners: Set<(now: number) => void>, timer: any}>} */
const tickers = new Map();

/** @param {number} every @param {(now: number) => void} listener */
function onTick(every, listener) {
  const ticker = tickers.get(every) ?? { listeners: new Set(), timer: null };
  tickers.set(every, ticker);
  ticker.listeners.add(listener);
  ticker.timer ??= setInterval(() => {
    if (!document.hidden) for (const one of [...ticker.listeners]) one(serverNow());
  }, every);
  return () => {
    ticker.listeners.delete(listener);
    if (ticker.listeners.size) return;
    clearInterval(ticker.timer);
    tickers.delete(every);
  };
}

/** Return the present by the server's clock, to which all its times belong. */
function serverNow() {
  return Date.now() + clockOffsetMs();
}

/** How long ago, with the full time as title. @param {{at: string | null | undefined}} props */
export function Ago({ at }) {
  const now = useNow(1000);
  if (!at) return html`<span class="muted">–</span>`;
  return html`<time datetime=${at} title=${formatTime(at)}>${formatAgo(at, now)}</time>`;
}

/**
 * The time from `from` to `until`; without `until` it counts on.
 * @param {{from: string | null | undefined, until?: string | null}} props
 */
export function Duration({ from, until }) {
  const now = useNow(1000, Boolean(from) && !until);
  if (!from) return html`<span class="muted">–</span>`;
  return html`<span class="number">${formatSeconds(Math.max(0, secondsBetween(from, until ?? now)))}</span>`;
}

/** Seconds until a time, counting down to "now". @param {{until: string}} props */
export function Countdown({ until }) {
  const now = useNow(200);
  const left = (Date.parse(until) - now) / 1000;
  return html`<span class="number countdown">${left > 0 ? formatSeconds(left < 10 ? left : Math.round(left)) : "now"}</span>`;
}

/** Return a count with thin spaces: 12 345. @param {number} count */
export function formatCount(count) {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** @param {number | null | undefined} bytes */
export function formatBytes(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB"];
  let value = bytes / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}
