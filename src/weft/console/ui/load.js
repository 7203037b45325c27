// Loading: a hook that calls, keeps the last answer, calls again, and says what went wrong.

import { Problem } from "../api.js";
import { html, useCallback, useEffect, useRef, useState } from "./preact.js";

/**
 * @template T
 * @typedef {{data: T | undefined, problem: Problem | null, loading: boolean, reload: () => void}} Loaded
 */

/**
 * Call when the page is drawn, when `inputs` change, and every so often while the page is seen. The last good
 * answer stays while the next one is on its way, or fails; where `inputs` change it goes.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {readonly any[]} inputs
 * @param {{every?: number}} [options] milliseconds; 0: only once
 * @returns {Loaded<T>}
 */
export function useLoad(load, inputs, { every = 0 } = {}) {
  const [state, setState] = useState(
    /** @type {{data: T | undefined, problem: Problem | null, loading: boolean, of: readonly any[]}} */ ({
      data: undefined, problem: null, loading: true, of: inputs,
    }),
  );
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const stop = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const once = async () => {
      let pause = every;
      try {
        const data = await latest.current(stop.signal);
        if (!stop.signal.aborted) setState({ data, problem: null, loading: false, of: inputs });
      } catch (error) {
        if (stop.signal.aborted) return;
        const problem = asProblem(error);
        setState((old) => ({ data: same(old.of, inputs) ? old.data : undefined, problem, loading: false, of: inputs }));
        if (problem.isOffline || problem.status === 503 || problem.status === 429) {
          pause = Math.max(every, 1000 * (problem.retryAfter ?? 3));
        } else if (problem.status >= 400 && problem.status < 500) pause = 0;
      }
      if (pause && !stop.signal.aborted) timer = setTimeout(whenSeen, pause);
    };
    const whenSeen = () => {
      if (!document.hidden) once();
      else document.addEventListener("visibilitychange", whenSeen, { once: true, signal: stop.signal });
    };
    once();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...inputs, every, turn]);
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  const fresh = same(state.of, inputs);
  return {
    data: fresh ? state.data : undefined,
    problem: fresh ? state.problem : null,
    loading: fresh ? state.loading : true,
    reload,
  };
}

/** @param {readonly any[]} a @param {readonly any[]} b */
function same(a, b) {
  return a.length === b.length && a.every((value, i) => Object.is(value, b[i]));
}

/** @param {unknown} error */
export function asProblem(error) {
  if (error instanceof Problem) return error;
  const detail = error instanceof Error ? error.message : String(error);
  return new Problem({ status: -1, code: "console", title: "The console failed", detail });
}

/**
 * A problem in full, with what may be done.
 * @param {{problem: Problem | null | undefined, retry?: () => void}} props
 */
export function ProblemNote({ problem, retry }) {
  if (!problem) return null;
  return html`<div class="note note-danger" role="alert">
    <strong>${problem.title}</strong>
    ${problem.detail !== problem.title && html`<p class="break">${problem.detail}</p>`}
    ${problem.problems.length > 0 &&
    html`<ul class="problem-list">
      ${problem.problems.slice(0, 20).map((one) => html`<li class="break"><code>${one.pointer || "/"}</code> ${one.message}</li>`)}
    </ul>`}
    <p class="small muted row wrap">
      <span>${problem.code}</span>
      ${problem.traceId && html`<span>trace <code>${problem.traceId}</code></span>`}
      ${retry && html`<button class="link" onClick=${retry}>Try again</button>`}
    </p>
  </div>`;
}

/** A small remark. @param {{kind?: "info" | "warning", children?: any}} props */
export function Note({ kind = "info", children }) {
  return html`<div class=${`note note-${kind}`} role="status">${children}</div>`;
}

/** What is shown where there is nothing. @param {{title: string, children?: any}} props */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
}

/** Shown while the first answer is on its way; it appears late, so that a quick answer does not flicker. */
export function Loading() {
  return html`<div class="loading" role="status"><span class="sr-only">Loading</span></div>`;
}
