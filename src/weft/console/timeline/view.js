// The timeline of an execution in an element: an overview, lanes that scroll, and a window of time that a brush sets.

import { STATES, QUEUED, WAITING, readPalette, watchTheme } from "../graph/palette.js";
import { useStyle } from "../graph/style.js";
import { button } from "../graph/toolbar.js";
import { formatCount } from "../ui/time.js";
import { AXIS, drawOverview, drawSheet, hatchesOf, xOf } from "./draw.js";
import { barsOf, expectedOf, lanesOf, nowOf } from "./lanes.js";
import { duration } from "./ticks.js";

const ROW = 22;
const OVERVIEW = 46;
const CLICK = 4;
const KEYS = "Arrow keys move between lanes and attempts, plus and minus zoom, f shows the whole time, c the critical path, Enter selects.";

/**
 * @typedef {{
 *   timeline: any, topology: {nodes: string[], handlers: string[], handler: number[]}, by?: "node" | "worker", onSelect?: (index: number) => void,
 *   selected?: number | null,
 * }} TimelineOptions
 */

/**
 * Show a timeline in an element, which gives it its size.
 * @param {HTMLElement} element
 * @param {TimelineOptions} options
 */
export function mountTimeline(element, options) {
  const view = new View(element, options);
  return {
    /** Show a newer answer of the API; the window of time stays. @param {any} timeline */
    update: (timeline) => view.update(timeline),
    /** Select a node and bring it into view. @param {number | null} index */
    select: (index) => view.select(index),
    /** Show lanes of nodes or of workers. @param {"node" | "worker"} by */
    setBy: (by) => view.setBy(by),
    fit: () => view.fit(),
    togglePath: () => view.togglePath(),
    destroy: () => view.destroy(),
  };
}

class View {
  /** @param {HTMLElement} element @param {TimelineOptions} options */
  constructor(element, options) {
    useStyle(new URL("./view.css", import.meta.url).href);
    this.options = options;
    this.ids = options.topology.nodes;
    this.by = options.by ?? "node";
    this.timeline = options.timeline;
    this.bars = barsOf(this.timeline, options.topology);
    this.criticalOnly = false;
    this.lanes = lanesOf(this.bars, this.by);
    this.selected = options.selected ?? null;
    this.hovered = -1;
    /** @type {number} the bar that the keyboard is on */
    this.current = -1;
    /** @type {[number, number] | null} null shows the whole time, also as it grows */
    this.window = null;
    this.squeezed = false;
    this.rowHeight = ROW;
    /** @type {[number, number] | null} */
    this.brush = null;
    this.frame = 0;
    this.width = this.height = 0;
    this.ratio = 1;
    /** @type {Map<string, string>} */
    this.texts = new Map();
    this.root = made("div", "weft-timeline");
    this.tools = made("div", "weft-timeline-tools");
    this.tools.setAttribute("role", "toolbar");
    this.tools.setAttribute("aria-label", "Timeline");
    this.summary = made("span", "");
    this.path = button("Critical path", "Show only nodes on the critical path (c)", () => this.togglePath());
    this.rows = button("Fit rows", "Fit rows: all lanes in view, or lanes that can be read", () => this.toggleRows());
    this.whole = button("Whole time", "Show the whole time (f)", () => this.fit());
    this.zoomOut = button("−", "Zoom out (-)", () => this.zoom(1.6, 0.5));
    this.zoomIn = button("+", "Zoom in (+)", () => this.zoom(0.625, 0.5));
    this.tools.append(this.summary, this.path, this.rows, this.zoomOut, this.zoomIn, this.whole);
    this.body = made("div", "weft-timeline-body");
    this.overview = document.createElement("canvas");
    this.overview.className = "weft-timeline-overview";
    this.overview.setAttribute("aria-hidden", "true");
    this.scroll = made("div", "weft-timeline-scroll");
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "timeline");
    this.space = made("div", "");
    this.scroll.append(this.canvas, this.space);
    this.live = made("div", "weft-timeline-live");
    this.live.setAttribute("aria-live", "polite");
    this.tip = made("div", "weft-timeline-tip");
    this.tip.hidden = true;
    this.tipName = document.createElement("b");
    this.tipText = document.createElement("span");
    this.tip.append(this.tipName, this.tipText);
    this.note = made("div", "weft-timeline-note");
    this.note.textContent = "Nothing has been queued yet.";
    this.body.append(this.note, this.overview, this.scroll, this.tip, this.live);
    this.root.append(this.tools, this.body);
    element.append(this.root);
    this.ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.palette = readPalette(this.root);
    this.hatches = hatchesOf(this.ctx, this.palette.states);
    this.unwatch = watchTheme(() => this.recolour());
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.body);
    this.listen();
    this.describe();
  }

  // What is shown.

  /** @param {any} timeline */
  update(timeline) {
    const before = this.current < 0 ? null : [this.bars.node[this.current], this.bars.number[this.current]];
    this.timeline = timeline;
    this.bars = barsOf(timeline, this.options.topology);
    this.hovered = -1;
    this.current = -1;
    for (let bar = 0; before !== null && bar < this.bars.count; bar++) {
      if (this.bars.node[bar] === before[0] && this.bars.number[bar] === before[1]) this.current = bar;
    }
    this.arrange();
  }

  arrange() {
    this.lanes = lanesOf(this.bars, this.by, this.criticalOnly);
    this.hovered = -1;
    this.describe();
    this.resize();
  }

  /** @param {"node" | "worker"} by */
  setBy(by) {
    this.by = by;
    if (by === "worker") this.criticalOnly = false;
    this.arrange();
  }

  togglePath() {
    if (this.bars.path.length === 0) return;
    this.criticalOnly = !this.criticalOnly;
    if (this.criticalOnly) this.by = "node";
    else this.by = this.options.by ?? "node";
    this.arrange();
  }

  toggleRows() {
    this.squeezed = !this.squeezed;
    this.resize();
    if (this.selected !== null) this.bring(this.selected);
  }

  describe() {
    const { bars, lanes } = this;
    const [count, path] = [bars.count, bars.path.length];
    const expected = expectedOf(this.timeline);
    const length = duration(nowOf(this.timeline));
    const parts = [`${formatCount(count)} attempt${count === 1 ? "" : "s"} in ${length}`];
    if (path > 0) parts.push(`critical path of ${path} node${path === 1 ? "" : "s"}`);
    if (expected !== null && this.timeline.finished_at === null) {
      parts.push(`end expected at ${duration(expected.at)} (${duration(expected.low)} to ${duration(expected.high)})`);
    }
    const text = parts.join(" · ");
    if (this.summary.textContent !== text) this.summary.textContent = text;
    const lanesBy = this.by === "node" ? "nodes" : "workers";
    this.canvas.setAttribute("aria-label", `Timeline of ${lanesBy}: ${text}, ${formatCount(lanes.count)} lanes. ${KEYS}`);
    this.path.hidden = path === 0;
    this.path.setAttribute("aria-pressed", String(this.criticalOnly));
    this.note.hidden = count > 0;
    this.overview.hidden = this.scroll.hidden = count === 0;
  }

  /** Return the name of a lane, or of node -1 - lane. @param {number} lane */
  label(lane) {
    if (lane < 0) return this.ids[-1 - lane] ?? "";
    const node = this.lanes.node[lane];
    if (node >= 0) return this.ids[node] ?? "";
    const worker = this.lanes.worker[lane];
    return worker < 0 ? (worker === -1 ? "no worker yet" : "needs no worker") : (this.timeline.workers[worker] ?? "");
  }

  // The frame.

  resize() {
    const { clientWidth: width, clientHeight } = this.scroll;
    if (width === 0) return;
    const height = Math.max(60, clientHeight);
    this.ratio = Math.min(3, window.devicePixelRatio || 1);
    this.width = width;
    this.height = height;
    const room = height - AXIS - 4;
    const many = Math.max(1, this.lanes.count);
    const full = many * ROW <= room;
    this.rows.hidden = full;
    this.rows.setAttribute("aria-pressed", String(this.squeezed));
    this.rowHeight = this.squeezed && !full ? room / many : ROW;
    this.space.style.height = `${Math.max(0, many * this.rowHeight + AXIS + 4 - height)}px`;
    size(this.canvas, width, height, this.ratio);
    size(this.overview, this.body.clientWidth, OVERVIEW, this.ratio);
    this.drawNow();
  }

  recolour() {
    this.palette = readPalette(this.root);
    this.hatches = hatchesOf(this.ctx, this.palette.states);
    this.draw();
  }

  draw() {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  /** @returns {import("./draw.js").Sheet} */
  sheet() {
    const [from, to] = this.window ?? [this.bars.first, this.bars.last];
    const isRunning = this.timeline.finished_at === null;
    const top = Math.min(this.scroll.scrollTop, Math.max(0, this.lanes.count * this.rowHeight + AXIS + 4 - this.height));
    return {
      ...{ ctx: this.ctx, palette: this.palette, texts: this.texts, ratio: this.ratio },
      ...{ width: this.width, height: this.height, left: this.width < 560 ? 92 : 190 },
      ...{ from, to, rowHeight: this.rowHeight, top, bars: this.bars, lanes: this.lanes },
      ...{ labels: (/** @type {number} */ lane) => this.label(lane), selected: this.selected, hovered: this.hovered },
      ...{ now: isRunning ? nowOf(this.timeline) : null, expected: isRunning ? expectedOf(this.timeline) : null },
      ...{ brush: this.brush, hatches: this.hatches },
    };
  }

  drawNow() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.width === 0 || this.bars.count === 0) return;
    const sheet = this.sheet();
    drawSheet(sheet);
    const ctx = this.overview.getContext("2d");
    if (ctx !== null) drawOverview(sheet, ctx, OVERVIEW);
    this.whole.disabled = this.window === null;
  }

  // The window of time.

  fit() {
    this.window = null;
    this.draw();
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    const { first, last } = this.bars;
    const least = Math.max(0.5, (last - first) / 1e6);
    const length = Math.min(last - first, Math.max(least, to - from));
    const begin = Math.min(last - length, Math.max(first, from));
    this.window = length >= last - first ? null : [begin, begin + length];
    this.draw();
  }

  /** @param {number} factor @param {number} share where in the window the time stays */
  zoom(factor, share) {
    const { from, to } = this.sheet();
    const fixed = from + (to - from) * share;
    this.show(fixed - (fixed - from) * factor, fixed + (to - fixed) * factor);
  }

  /** @param {number} share */
  pan(share) {
    const { from, to } = this.sheet();
    const by = (to - from) * share;
    this.show(from + by, to + by);
  }

  // Selection.

  /** @param {number | null} index */
  select(index) {
    this.selected = index;
    if (index !== null) this.bring(index);
    this.draw();
  }

  /** Scroll to the first lane of a node. @param {number} node */
  bring(node) {
    let lane = this.lanes.node.indexOf(node);
    if (lane < 0) {
      const bar = this.bars.node.indexOf(node);
      lane = bar < 0 ? -1 : this.lanes.of[bar];
    }
    if (lane >= 0) this.bringLane(lane);
  }

  /** @param {number} lane */
  bringLane(lane) {
    const top = lane * this.rowHeight;
    const { scrollTop } = this.scroll;
    const room = this.height - AXIS - this.rowHeight;
    if (top < scrollTop) this.scroll.scrollTop = top;
    else if (top > scrollTop + room) this.scroll.scrollTop = top - room;
  }

  /** @param {number} bar */
  choose(bar) {
    this.current = bar;
    this.selected = this.bars.node[bar];
    this.options.onSelect?.(this.selected);
    this.draw();
  }

  /** Go to another bar by keyboard. @param {number} lanes @param {number} bars */
  step(lanes, bars) {
    const { of, start, bars: list, count } = this.lanes;
    if (count === 0 || list.length === 0) return;
    let next = list[0];
    if (this.current >= 0 && of[this.current] >= 0) {
      const lane = Math.min(count - 1, Math.max(0, of[this.current] + lanes));
      const place = lanes === 0 ? list.indexOf(this.current, start[lane]) + bars : start[lane];
      next = list[Math.min(start[lane + 1] - 1, Math.max(start[lane], place))];
    }
    this.current = next;
    this.selected = this.bars.node[next];
    this.live.textContent = this.words(next).join(", ");
    this.bringLane(of[next]);
    const { from, to } = this.sheet();
    const { queued, finished } = this.bars;
    if (finished[next] < from || queued[next] > to) this.show(queued[next] - (to - from) / 3, queued[next] + ((to - from) * 2) / 3);
    this.draw();
  }

  /** Return what a bar is, in words. @param {number} bar */
  words(bar) {
    const { bars } = this;
    const waited = bars.started[bar] - bars.queued[bar];
    const ran = bars.finished[bar] - bars.started[bar];
    const worker = bars.worker[bar] < 0 ? "" : this.timeline.workers[bars.worker[bar]];
    const isLook = bars.kind[bar] === WAITING && bars.waits[bar] === 0;
    const word = bars.lost[bar] === 1 ? "lost with its worker" : isLook ? "looked, in vain" : STATES[bars.kind[bar]].word;
    return [
      ...[this.ids[bars.node[bar]] ?? "", `attempt ${bars.number[bar]} · ${word}`],
      ...(bars.waits[bar] === 1 ? [`waits for ${duration(ran)}`] : [`waited ${duration(waited)}`, ...(bars.kind[bar] === QUEUED ? [] : [`ran ${duration(ran)}`])]),
      ...(worker ? [`on ${worker}`] : []),
      ...(bars.critical[bar] === 1 ? ["on the critical path"] : []),
    ];
  }

  // The pointer and the keys.

  /** Return the bar at a point: the last drawn, the nearest within two pixels; -1 for none. @param {number} x @param {number} y */
  at(x, y) {
    const sheet = this.sheet();
    const lane = Math.floor((y - AXIS + sheet.top) / this.rowHeight);
    if (y < AXIS || x < sheet.left || lane < 0 || lane >= this.lanes.count) return -1;
    let best = -1;
    for (let place = this.lanes.start[lane]; place < this.lanes.start[lane + 1]; place++) {
      const bar = this.lanes.bars[place];
      const begin = this.lanes.node[lane] >= 0 ? this.bars.queued[bar] : this.bars.started[bar];
      if (xOf(sheet, begin) - 2 <= x && x <= xOf(sheet, this.bars.finished[bar]) + 2) best = bar;
    }
    return best;
  }

  listen() {
    this.scroll.addEventListener("scroll", () => this.draw());
    this.brushOn(this.canvas, () => this.sheet());
    this.brushOn(this.overview, () => ({ ...this.sheet(), from: this.bars.first, to: this.bars.last }));
    this.canvas.addEventListener("pointerleave", () => this.point(-1, 0, 0));
    this.canvas.addEventListener("dblclick", () => this.fit());
    this.overview.addEventListener("dblclick", () => this.fit());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.scroll.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.shiftKey) return;
        event.preventDefault();
        const { left, width } = this.sheet();
        const share = (event.clientX - this.canvas.getBoundingClientRect().x - left) / Math.max(1, width - left);
        if (event.ctrlKey) this.zoom(Math.exp(event.deltaY * 0.002), Math.min(1, Math.max(0, share)));
        else this.pan((event.deltaX || event.deltaY) / 1500);
      },
      { passive: false },
    );
  }

  /**
   * Let a drag on a canvas set the window of time.
   * @param {HTMLCanvasElement} canvas
   * @param {() => import("./draw.js").Sheet} sheetOf
   */
  brushOn(canvas, sheetOf) {
    let begin = NaN;
    const place = (/** @type {PointerEvent} */ event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.x, event.clientY - box.y];
    };
    const time = (/** @type {number} */ x) => {
      const { left, width, from, to } = sheetOf();
      return from + (Math.min(1, Math.max(0, (x - left) / (width - left))) * (to - from));
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || (event.pointerType === "touch" && canvas === this.canvas)) return;
      canvas.setPointerCapture(event.pointerId);
      begin = place(event)[0];
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (Number.isNaN(begin)) {
        if (canvas === this.canvas) this.point(this.at(x, y), x, y);
        return;
      }
      if (Math.abs(x - begin) <= CLICK) return;
      if (canvas === this.canvas) this.brush = [begin, x];
      else this.show(Math.min(time(begin), time(x)), Math.max(time(begin), time(x)));
      this.draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      const [x, y] = place(event);
      const from = begin;
      begin = NaN;
      if (this.brush !== null) {
        this.brush = null;
        this.show(Math.min(time(from), time(x)), Math.max(time(from), time(x)));
      } else if (canvas === this.canvas) {
        const bar = this.at(x, y);
        const lane = Math.floor((y - AXIS + this.sheet().top) / this.rowHeight);
        if (bar >= 0) this.choose(bar);
        else if (x < this.sheet().left && y > AXIS && this.lanes.node[lane] >= 0) this.choose(this.lanes.bars[this.lanes.start[lane]]);
      }
    });
    canvas.addEventListener("pointercancel", () => {
      begin = NaN;
      this.brush = null;
      this.draw();
    });
  }

  /** @param {number} bar @param {number} x @param {number} y */
  point(bar, x, y) {
    if (bar !== this.hovered) {
      this.hovered = bar;
      this.draw();
    }
    this.tip.hidden = bar < 0;
    if (bar < 0) return;
    const [name, ...rest] = this.words(bar);
    this.tipName.textContent = name;
    this.tipText.textContent = rest.join("\n");
    const { offsetWidth, offsetHeight } = this.tip;
    const top = y + OVERVIEW;
    const isRight = x + 14 + offsetWidth > this.width;
    this.tip.style.left = `${Math.max(0, isRight ? x - 14 - offsetWidth : x + 14)}px`;
    this.tip.style.top = `${top + 14 + offsetHeight > this.height + OVERVIEW ? top - 10 - offsetHeight : top + 14}px`;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowDown") this.step(1, 0);
    else if (event.key === "ArrowUp") this.step(-1, 0);
    else if (event.key === "ArrowRight" && event.shiftKey) this.pan(0.15);
    else if (event.key === "ArrowLeft" && event.shiftKey) this.pan(-0.15);
    else if (event.key === "ArrowRight") this.step(0, 1);
    else if (event.key === "ArrowLeft") this.step(0, -1);
    else if (event.key === "+" || event.key === "=") this.zoom(0.625, 0.5);
    else if (event.key === "-") this.zoom(1.6, 0.5);
    else if (event.key === "f" || (event.key === "Escape" && this.window !== null)) this.fit();
    else if (event.key === "c") this.togglePath();
    else if (event.key === "Enter" && this.current >= 0) this.choose(this.current);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.width = 0;
    this.sizes.disconnect();
    this.unwatch();
    this.root.remove();
  }
}

/**
 * @template {"div" | "span"} T
 * @param {T} tag
 * @param {string} name
 * @returns {HTMLElementTagNameMap[T]}
 */
function made(tag, name) {
  const element = document.createElement(tag);
  if (name !== "") element.className = name;
  return element;
}

/** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @param {number} ratio */
function size(canvas, width, height, ratio) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}
