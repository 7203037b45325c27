// The states of an execution as they change. One tab of the browser has the stream and passes on what it hears to the
// others, because a browser opens six connections to a server and no more: the tab that holds the lock is the one, and
// is one that is seen. Where the lock or the channel is not there (plain HTTP on another machine), each tab that is seen
// has its own stream.

import { streamPath } from "./api.js";
import { openStream } from "./ui/sse.js";
import { codeOfLetter, codesOfLetters } from "./ui/states.js";

/**
 * @typedef {object} Live what is known of an execution now
 * @property {Uint8Array} states the code of each node, in the order of the topology
 * @property {Record<string, number>} counts
 * @property {string} state
 * @property {number} generation
 * @property {number} seq of the last event in it
 * @property {string} at
 *
 * @typedef {{kind: "connecting" | "live" | "reconnecting" | "stale" | "ended", since: number}} LiveStatus
 * @typedef {{onSnapshot: (live: Live) => void, onChanges: (changes: [number, number][], live: Live) => void,
 *   onStatus: (status: LiveStatus) => void}} Listener
 */

/** Nothing at all for so long, not even a comment, is stale. */
export const STALE_MS = 12_000;

/**
 * Take a frame of the stream into what is known; null: the frame makes no sense without a snapshot before it.
 * @param {Live | null} live
 * @param {string} event
 * @param {any} data
 * @returns {{live: Live, changes: [number, number][] | null} | null} changes null: everything may have changed
 */
export function applyFrame(live, event, data) {
  if (event === "snapshot") {
    const states = codesOfLetters(data.states ?? "");
    const { counts, state, generation, seq, at } = data;
    return { live: { states, counts, state, generation, seq, at }, changes: null };
  }
  if (event !== "changes" || !live) return null;
  /** @type {[number, number][]} */
  const changes = [];
  for (const [index, letter] of data.changes) {
    const code = codeOfLetter(letter);
    if (index < live.states.length && live.states[index] !== code) {
      live.states[index] = code;
      changes.push([index, code]);
    }
  }
  const { counts, state, seq, at } = data;
  return { live: { ...live, counts, state, seq, at }, changes };
}

/**
 * Watch an execution until it ends; returns how to stop. After the end of a generation nothing comes any more.
 * @param {string} id
 * @param {Listener} listener
 */
export function watchExecution(id, listener) {
  const watch = new Watch(id, listener);
  return () => watch.stop();
}

class Watch {
  /** @param {string} id @param {Listener} listener */
  constructor(id, listener) {
    this.id = id;
    this.listener = listener;
    /** @type {Live | null} */
    this.live = null;
    this.leads = false;
    /** Let another tab lead. */
    this.release = () => {};
    this.ended = false;
    this.heardAt = Date.now();
    this.kind = "connecting";
    this.stopper = new AbortController();
    /** Ends with the tab's turn in the queue of those who may lead. */
    this.turn = new AbortController();
    /** @type {(() => void) | null} */
    this.closeStream = null;
    this.channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(`weft.live.${id}`) : null;
    this.channel?.addEventListener("message", (event) => this.hear(event.data));
    this.timer = setInterval(() => this.check(), 1000);
    listener.onStatus({ kind: "connecting", since: this.heardAt });
    document.addEventListener("visibilitychange", () => this.seen(), { signal: this.stopper.signal });
    if (!document.hidden) this.join();
  }

  /** A tab that nobody sees leaves its stream to one that is seen, or to nobody. */
  seen() {
    if (this.ended) return;
    this.turn.abort();
    this.closeStream?.();
    this.leads = false;
    if (document.hidden) return;
    this.heardAt = Date.now();
    this.tell("reconnecting");
    this.join();
  }

  async join() {
    this.turn = new AbortController();
    const { signal } = this.turn;
    if (!this.channel || !navigator.locks) {
      this.lead();
      return;
    }
    this.channel.postMessage({ type: "hello" });
    try {
      // Held until the execution ends, or this tab stops watching or is seen no more; then the next one in the queue leads.
      await navigator.locks.request(`weft.live.${this.id}`, { signal }, () => {
        if (this.ended || signal.aborted) return null;
        this.lead();
        return new Promise((resolve) => {
          this.release = () => resolve(null);
          signal.addEventListener("abort", this.release);
        });
      });
    } catch (error) {
      if (!signal.aborted) this.lead();
    }
  }

  lead() {
    if (this.ended || this.stopper.signal.aborted) return;
    this.leads = true;
    this.closeStream = openStream(streamPath(this.id, "live"), {
      endsWith: "end",
      silenceMs: 20_000,
      onBeat: () => this.beat(),
      onEvent: ({ event, data }) => this.frame(event, JSON.parse(data)),
      onStatus: (status) => {
        if (status.kind === "open") this.tell("live");
        else if (status.kind === "reconnecting") this.tell("reconnecting");
        else if (status.kind === "ended") this.tell("ended");
        else if (status.kind === "refused") this.tell("stale");
      },
    });
  }

  /** Something came from the server: pass on that it lives. */
  beat() {
    const now = Date.now();
    const quiet = now - this.heardAt;
    this.heardAt = now;
    if (this.kind === "stale") this.tell("live");
    else if (quiet > 2000) this.channel?.postMessage({ type: "beat", kind: this.kind });
  }

  /** @param {string} event @param {any} data */
  frame(event, data) {
    this.channel?.postMessage({ type: "frame", event, data });
    this.apply(event, data);
    if (event === "end") this.tell("ended");
  }

  /** @param {string} event @param {any} data */
  apply(event, data) {
    const result = applyFrame(this.live, event, data);
    if (!result) return;
    this.live = result.live;
    if (result.changes === null) this.listener.onSnapshot(this.live);
    else this.listener.onChanges(result.changes, this.live);
  }

  /** Hear another tab. @param {any} message */
  hear(message) {
    if (message.type === "hello") {
      if (this.leads && !this.ended && this.live) {
        const { states, ...rest } = this.live;
        const letters = Array.from(states, (code) => "PQRCFSXTW"[code]).join("");
        this.channel?.postMessage({ type: "frame", event: "snapshot", data: { ...rest, states: letters } });
        this.channel?.postMessage({ type: "beat", kind: this.kind });
      }
      return;
    }
    // After the end of a generation the frames of another tab say that there is a next one.
    if (this.leads && !this.ended) return;
    this.heardAt = Date.now();
    if (message.type === "beat") this.tell(message.kind);
    else if (message.type === "frame") {
      this.apply(message.event, message.data);
      if (message.event === "end") this.tell("ended");
      else if (this.kind === "connecting" || this.kind === "stale") this.tell("live");
    }
  }

  check() {
    const quiet = Date.now() - this.heardAt;
    if (quiet > STALE_MS && this.kind === "live") this.tell("stale");
  }

  /** @param {string} kind */
  tell(kind) {
    if (kind === "ended") {
      this.ended = true;
      this.release();
    }
    if (kind === this.kind) return;
    this.kind = kind;
    if (this.leads) this.channel?.postMessage({ type: "beat", kind });
    this.listener.onStatus({ kind: /** @type {LiveStatus["kind"]} */ (kind), since: this.heardAt });
  }

  stop() {
    this.stopper.abort();
    this.turn.abort();
    this.closeStream?.();
    clearInterval(this.timer);
    this.channel?.close();
  }
}
