// Executions of each hour as stacked bars on a canvas. A table that only readers of the screen meet says the same.

import { html, useEffect, useRef, useState } from "../ui/preact.js";
import { stateOf } from "../ui/states.js";
import { formatCount } from "../ui/time.js";
import { ENDS } from "./overview.js";

/** @typedef {import("../types").Hour} Hour */

const HEIGHT = 150;
const TOP = 8;
const AXIS = 20;
const LEFT = 40;

/** Return a round number that is no smaller: the end of an axis. @param {number} most */
export function axisEnd(most) {
  if (most <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [1, 2, 4, 5, 8, 10].find((one) => one * power >= most) ?? 10;
  return step * power;
}

/**
 * Return where the bars are: of each hour its place, the heights of its parts, and the height of what started.
 * @param {Hour[]} hours @param {{width: number, height: number}} size of the plot
 */
export function barsOf(hours, { width, height }) {
  const most = Math.max(0, ...hours.map((hour) => Math.max(hour.started, ENDS.reduce((sum, end) => sum + hour[end], 0))));
  const end = axisEnd(most);
  const step = width / Math.max(1, hours.length);
  const gap = Math.min(4, step * 0.25);
  const bars = hours.map((hour, i) => ({
    x: i * step + gap / 2,
    width: step - gap,
    // What is not nothing is seen.
    parts: ENDS.map((name) => (hour[name] ? Math.max(2, (hour[name] / end) * height) : 0)),
    started: (hour.started / end) * height,
  }));
  return { end, step, bars };
}

/** Return the hour of the day as the reader has it: "14:00". @param {string} from */
export function hourText(from) {
  const at = new Date(from);
  return `${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}`;
}

/** @param {{hours: Hour[]}} props */
export function Hours({ hours }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [at, setAt] = useState(-1);
  const [width, setWidth] = useState(0);
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    const box = /** @type {HTMLElement} */ (canvas.current?.parentElement);
    const observer = new ResizeObserver(() => setWidth(box.clientWidth));
    observer.observe(box);
    const changed = () => setTheme((n) => n + 1);
    addEventListener("themechange", changed);
    return () => {
      observer.disconnect();
      removeEventListener("themechange", changed);
    };
  }, []);
  useEffect(() => {
    if (canvas.current && width) draw(canvas.current, hours, { width, at });
  }, [hours, width, at, theme]);
  const move = (/** @type {PointerEvent} */ event) => {
    const x = event.offsetX - LEFT;
    const index = Math.floor((x / Math.max(1, width - LEFT)) * hours.length);
    setAt(x >= 0 && index < hours.length ? index : -1);
  };
  return html`<figure class="hours">
    <div class="hours-plot"><canvas ref=${canvas} class="hours-canvas" aria-hidden="true" onPointerMove=${move} onPointerDown=${move} onPointerLeave=${() => setAt(-1)}></canvas></div>
    <figcaption class="row wrap small"><${Legend} hour=${hours[at]} /></figcaption>
    <table class="sr-only"><caption>Executions of the last hours</caption>
      <thead><tr><th>Hour</th><th>Started</th>${ENDS.map((end) => html`<th>${stateOf(end).word}</th>`)}</tr></thead>
      <tbody>${hours.map((hour) => html`<tr><th>${hourText(hour.from)}</th><td>${hour.started}</td>${ENDS.map((end) => html`<td>${hour[end]}</td>`)}</tr>`)}</tbody>
    </table>
  </figure>`;
}

/** What the colours mean; of the hour under the pointer, its figures. @param {{hour: Hour | undefined}} props */
function Legend({ hour }) {
  return html`
    ${ENDS.map((end) => {
      const state = stateOf(end);
      return html`<span class=${`state state-${state.css}`}><span class="state-sign" aria-hidden="true">${state.sign}</span><span>${state.word}${hour ? ` ${formatCount(hour[end])}` : ""}</span></span>`;
    })}
    <span class="state"><span class="state-sign" aria-hidden="true">–</span><span>${`started${hour ? ` ${formatCount(hour.started)}` : ""}`}</span></span>
    <span class="muted hours-at">${hour ? `from ${hourText(hour.from)}` : "in each of the last 24 hours"}</span>`;
}

/** @param {HTMLCanvasElement} canvas @param {Hour[]} hours @param {{width: number, at: number}} view */
function draw(canvas, hours, { width, at }) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(HEIGHT * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${HEIGHT}px`;
  const ctx = canvas.getContext("2d");
  if (!ctx) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, HEIGHT);
  ctx.font = `11px ${colour("--font")}`;
  const plot = { width: width - LEFT, height: HEIGHT - TOP - AXIS };
  const { end, step, bars } = barsOf(hours, plot);
  const floor = TOP + plot.height;
  drawAxes(ctx, { hours, end, step, floor, width, height: plot.height, line: colour("--border"), text: colour("--text-3") });
  if (at >= 0) {
    ctx.fillStyle = colour("--surface-3");
    ctx.fillRect(LEFT + at * step, TOP, step, plot.height);
  }
  const fills = ENDS.map((name) => colour(`--state-${stateOf(name).css}`));
  bars.forEach((bar) => {
    let y = floor;
    bar.parts.forEach((height, i) => {
      ctx.fillStyle = fills[i];
      ctx.fillRect(LEFT + bar.x, (y -= height), bar.width, height);
    });
    if (!bar.started) return;
    ctx.fillStyle = colour("--text");
    ctx.fillRect(LEFT + bar.x - 1, floor - bar.started - 0.75, bar.width + 2, 1.5);
  });
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {{hours: Hour[], end: number, step: number, floor: number, width: number, height: number, line: string, text: string}} axes
 */
function drawAxes(ctx, { hours, end, step, floor, width, height, line, text }) {
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  for (const part of [0, 0.5, 1]) {
    const y = Math.round(floor - part * height) + 0.5;
    ctx.fillStyle = line;
    ctx.fillRect(LEFT, y - 0.5, width - LEFT, 1);
    ctx.fillStyle = text;
    ctx.fillText(shortCount(end * part), LEFT - 6, Math.max(y, 6));
  }
  ctx.textBaseline = "alphabetic";
  ctx.textAlign = "left";
  const every = [1, 2, 3, 4, 6, 12].find((hoursApart) => hoursApart * step >= 44) ?? 12;
  hours.forEach((hour, i) => {
    const isShown = new Date(hour.from).getHours() % every === 0;
    if (isShown && LEFT + i * step + 32 <= width) ctx.fillText(hourText(hour.from), LEFT + i * step, floor + 14);
  });
}

/** Return a count that fits beside an axis: 950, 1.5k, 20k, 3M. @param {number} count */
export function shortCount(count) {
  if (count >= 1e6) return `${+(count / 1e6).toFixed(1)}M`;
  return count >= 1e3 ? `${+(count / 1e3).toFixed(1)}k` : String(count);
}
