// Server-sent events over fetch. EventSource hides comments and the status of an answer; a stream that is quiet is
// told from one that is dead by its comments, and a refused one says why.

import { Problem, send } from "../api.js";

// A browser opens six connections to a server over all its tabs, and no more. Streams hold four of them at most: one
// that finds no place is opened for a moment every few seconds, and goes on where it was.
const PLACES = 4;
const MOMENT_MS = 1000;
const BETWEEN_MS = 2000;

/** @typedef {{event: string, data: string, id: string}} Told */

/**
 * Take one of the places for streams; null: others have them all.
 * @returns {Promise<(() => void) | null>} how to give it back
 */
async function takePlace() {
  // Where there are no locks (plain HTTP on another machine), nobody can count.
  for (let i = 0; i < PLACES; i++) {
    if (!navigator.locks) return () => {};
    const give = await new Promise((resolve) => {
      navigator.locks.request(`weft.stream.${i}`, { ifAvailable: true }, (lock) => (lock ? new Promise(resolve) : resolve(null)));
    });
    if (give) return give;
  }
  return null;
}

/** Reads events out of the text of a stream, in whatever pieces it comes. */
export class SseParser {
  /** @param {(told: Told) => void} onEvent */
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = "";
    this.event = "";
    /** @type {string[]} */
    this.data = [];
    this.id = "";
    /** What the server asked to wait before connecting again. @type {number | null} */
    this.retryMs = null;
  }

  /** @param {string} text */
  push(text) {
    // A piece may end between the two characters of a line's end.
    const whole = this.rest + text;
    const held = whole.endsWith("\r") ? whole.length - 1 : whole.length;
    const lines = whole.slice(0, held).split(/\r\n|\n|\r/);
    this.rest = /** @type {string} */ (lines.pop()) + whole.slice(held);
    for (const line of lines) this.line(line);
  }

  /** @param {string} line */
  line(line) {
    if (line === "") {
      if (this.data.length) this.onEvent({ event: this.event || "message", data: this.data.join("\n"), id: this.id });
      this.event = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.data.push(value);
    else if (field === "event") this.event = value;
    else if (field === "id") this.id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
  }
}

/**
 * @typedef {{kind: "connecting"} | {kind: "open"} | {kind: "reconnecting"} | {kind: "ended"} | {kind: "refused", problem: Problem}} StreamStatus
 */

/**
 * Read a stream until it ends or is closed, and connect again where it breaks. Returns how to close it.
 * @param {string} path
 * @param {{
 *   query?: Record<string, any>, onEvent: (told: Told) => void, onStatus?: (status: StreamStatus) => void,
 *   onBeat?: () => void, endsWith?: string, silenceMs?: number, restHidden?: boolean,
 * }} options `onBeat`: something came, be it a comment; `endsWith`: the event behind which nothing comes;
 *   `silenceMs`: a stream that says nothing for so long is dead; `restHidden`: let go while the page is not seen
 */
export function openStream(path, { query, onEvent, onStatus, onBeat, endsWith, silenceMs = 45_000, restHidden = false }) {
  let closed = false;
  let lastId = "";
  let pauseMs = 500;
  let stop = new AbortController();
  const visible = () => document.dispatchEvent(new Event("weft:seen"));

  const once = async () => {
    stop = new AbortController();
    let ended = false;
    let isOver = false;
    const give = await takePlace();
    let timer = setTimeout(() => stop.abort(), silenceMs);
    const parser = new SseParser((told) => {
      if (told.id) lastId = told.id;
      if (told.event === endsWith) ended = true;
      if (!closed) onEvent(told);
    });
    try {
      /** @type {Record<string, string>} */
      const headers = { Accept: "text/event-stream" };
      if (lastId) headers["Last-Event-ID"] = lastId;
      const response = await send(path, query, { headers, signal: stop.signal });
      if (response.status === 204 || !response.body) return "ended";
      onStatus?.({ kind: "open" });
      if (!give) {
        clearTimeout(timer);
        timer = setTimeout(() => ((isOver = true), stop.abort()), MOMENT_MS);
      }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || closed) break;
        if (give) {
          clearTimeout(timer);
          timer = setTimeout(() => stop.abort(), silenceMs);
        }
        pauseMs = parser.retryMs ?? 500;
        onBeat?.();
        parser.push(value);
        if (ended) {
          stop.abort();
          break;
        }
      }
    } catch (error) {
      if (!isOver) throw error;
    } finally {
      clearTimeout(timer);
      give?.();
    }
    return ended ? "ended" : isOver ? "over" : "broken";
  };

  const run = async () => {
    onStatus?.({ kind: "connecting" });
    while (!closed) {
      if (restHidden && document.hidden) {
        await new Promise((resolve) => document.addEventListener("weft:seen", resolve, { once: true }));
        if (closed) return;
      }
      try {
        const how = await once();
        if (how === "ended") {
          if (!closed) onStatus?.({ kind: "ended" });
          return;
        }
        if (how === "over") {
          await new Promise((resolve) => setTimeout(resolve, BETWEEN_MS));
          continue;
        }
      } catch (error) {
        if (closed) return;
        if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) {
          onStatus?.({ kind: "refused", problem: error });
          return;
        }
        if (error instanceof Problem && error.retryAfter) pauseMs = Math.max(pauseMs, 1000 * error.retryAfter);
      }
      if (closed) return;
      onStatus?.({ kind: "reconnecting" });
      await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.7 + 0.6 * Math.random())));
      pauseMs = Math.min(10_000, pauseMs * 2);
    }
  };

  const seen = () => {
    if (!document.hidden) visible();
    else if (restHidden) stop.abort();
  };
  document.addEventListener("visibilitychange", seen);
  run();
  return () => {
    closed = true;
    document.removeEventListener("visibilitychange", seen);
    stop.abort();
    visible();
  };
}

