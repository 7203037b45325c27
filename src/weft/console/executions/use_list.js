// The rows of the list: pages as they are scrolled to, refreshed while they are seen.

import { listExecutions } from "../api.js";
import { asProblem } from "../ui/load.js";
import { useCallback, useEffect, useRef, useState } from "../ui/preact.js";
import { mergeRows } from "./query.js";

const FIRST = 100;
const REFRESH_MS = 3000;

/** @typedef {import("../types").Execution} Execution */

/**
 * @param {Record<string, any>} wanted the parameters of the call
 * @param {string} key the same wherever the list is the same
 */
export function useList(wanted, key) {
  const [rows, setRows] = useState(/** @type {Execution[] | null} */ (null));
  const [problem, setProblem] = useState(/** @type {import("../api.js").Problem | null} */ (null));
  const [turn, setTurn] = useState(0);
  const cursor = useRef(/** @type {string | null} */ (null));
  const loaded = useRef(0);
  const busy = useRef(false);
  const query = useRef(wanted);
  useEffect(() => {
    const stop = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let first = true;
    query.current = { ...wanted };
    busy.current = false;
    setRows((old) => (turn && old ? old : null));
    const refresh = async () => {
      let pause = REFRESH_MS;
      try {
        const limit = first ? FIRST : Math.min(500, Math.max(FIRST, loaded.current));
        const page = await listExecutions({ ...query.current, limit }, stop.signal);
        if (stop.signal.aborted) return;
        if (first) {
          cursor.current = page.next_cursor;
          loaded.current = page.items.length;
          setRows(page.items);
        } else {
          // A row that no longer fits the filters, such as a finished one among the running, leaves the list.
          const whole = page.next_cursor === null;
          setRows((old) => (whole || !old ? page.items : mergeRows(leaveOut(old, page.items), page.items)));
        }
        first = false;
        setProblem(null);
      } catch (error) {
        if (stop.signal.aborted) return;
        const caught = asProblem(error);
        setProblem(caught);
        if (caught.status >= 400 && caught.status < 500 && caught.status !== 429) return;
        pause = 1000 * (caught.retryAfter ?? 3);
      }
      timer = setTimeout(whenSeen, pause);
    };
    const whenSeen = () => {
      if (!document.hidden) refresh();
      else document.addEventListener("visibilitychange", whenSeen, { once: true, signal: stop.signal });
    };
    refresh();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, turn]);
  const more = useCallback(async () => {
    if (!cursor.current || busy.current) return;
    busy.current = true;
    const asked = query.current;
    try {
      const page = await listExecutions({ ...asked, limit: FIRST, cursor: cursor.current });
      if (asked !== query.current) return;
      cursor.current = page.next_cursor;
      loaded.current += page.items.length;
      setRows((old) => mergeRows(old ?? [], page.items));
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      busy.current = false;
    }
  }, []);
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  return { rows, problem, more, reload, hasMore: cursor.current !== null };
}

/**
 * Return the rows without those that a fresh page should have had and has not.
 * @param {Execution[]} old @param {Execution[]} fresh newest first
 */
function leaveOut(old, fresh) {
  const last = fresh.at(-1);
  if (!last) return old;
  const ids = new Set(fresh.map((row) => row.id));
  return old.filter((row) => row.id < last.id || ids.has(row.id));
}
