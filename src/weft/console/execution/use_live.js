// The states of the execution that is shown, for all its tabs: drawings listen to each change, the rest is drawn
// again a few times a second at most.

import { watchExecution } from "../live.js";
import { html, useEffect, useMemo, useState } from "../ui/preact.js";
import { formatSeconds, useNow } from "../ui/time.js";

/**
 * @typedef {import("../live.js").Live} Live
 * @typedef {{now: Live | null, listen: (listener: Drawing) => () => void}} Source
 * @typedef {{setStates: (states: Uint8Array) => void, patch: (changes: [number, number][]) => void}} Drawing
 */

const REDRAW_MS = 250;

/**
 * @param {string} id
 * @param {number} turn another one watches anew, after a retry
 */
export function useLive(id, turn) {
  const [status, setStatus] = useState(/** @type {import("../live.js").LiveStatus} */ ({ kind: "connecting", since: Date.now() }));
  const [, setFrame] = useState(0);
  /** @type {Source & {drawings: Set<Drawing>}} */
  const source = useMemo(() => {
    /** @type {Set<Drawing>} */
    const drawings = new Set();
    return {
      drawings,
      now: null,
      listen: (drawing) => {
        drawings.add(drawing);
        return () => drawings.delete(drawing);
      },
    };
  }, [id]);
  useEffect(() => {
    /** @type {ReturnType<typeof setTimeout> | null} */
    let timer = null;
    const redraw = () => {
      timer ??= setTimeout(() => {
        timer = null;
        setFrame((n) => n + 1);
      }, REDRAW_MS);
    };
    const stop = watchExecution(id, {
      onSnapshot: (live) => {
        source.now = live;
        for (const drawing of source.drawings) drawing.setStates(live.states);
        setFrame((n) => n + 1);
      },
      onChanges: (changes, live) => {
        source.now = live;
        for (const drawing of source.drawings) drawing.patch(changes);
        redraw();
      },
      onStatus: setStatus,
    });
    return () => {
      stop();
      if (timer) clearTimeout(timer);
    };
  }, [id, turn]);
  return { source, live: source.now, status };
}

const WORDS = /** @type {Record<string, string>} */ ({
  connecting: "connecting", live: "live", reconnecting: "reconnecting", ended: "ended",
});

/** Whether what is shown is live. @param {{status: import("../live.js").LiveStatus}} props */
export function LiveBadge({ status }) {
  const now = useNow(1000, status.kind === "stale");
  if (status.kind === "ended") return null;
  const word = status.kind === "stale" ? `stale for ${formatSeconds(Math.round((now - status.since) / 1000))}` : WORDS[status.kind];
  return html`<span class=${`live live-${status.kind}`} role="status"><span class="live-dot" aria-hidden="true"></span>${word}</span>`;
}
