// Lines that nodes printed and logged, followed as they come. The oldest go where there are too many for a page.

import { streamPath } from "../api.js";
import { Dialog, openDialog } from "../ui/dialog.js";
import { visible } from "../ui/json_tree.js";
import { Empty, ProblemNote } from "../ui/load.js";
import { html, useEffect, useMemo, useState } from "../ui/preact.js";
import { setQuery } from "../ui/router.js";
import { openStream } from "../ui/sse.js";
import { formatClock, formatCount, formatTime } from "../ui/time.js";
import { VirtualList } from "../ui/virtual_list.js";

/** @typedef {import("../types").LogLine} LogLine */
/** @typedef {{line: LogLine, text: string, first: boolean}} Row */

export const MOST_ROWS = 50_000;
const REDRAW_MS = 100;
// ANSI's escapes: colours of terminals, and all else that moves cursors.
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007]*(?:\u0007|\u001b\\)|[@-_])/g;

/**
 * Return the rows of a line: each of its lines is one, without the escapes of terminals.
 * @param {LogLine} line @returns {Row[]}
 */
export function rowsOf(line) {
  const text = line.message.replace(ESCAPES, "").replace(/\r\n?/g, "\n").replace(/\n+$/, "");
  return text.split("\n").map((one, i) => ({ line, text: visible(one), first: i === 0 }));
}

/**
 * Read a stream of numbered things into a list that grows, and draw a few times a second.
 * @template T
 * @param {string} path @param {Record<string, any>} query @param {(data: any) => T[]} read @param {string} key
 */
export function useStream(path, query, read, key) {
  const [shown, setShown] = useState(/** @type {{items: T[], dropped: number, status: import("../ui/sse.js").StreamStatus}} */ ({ items: [], dropped: 0, status: { kind: "connecting" } }));
  useEffect(() => {
    /** @type {T[]} */
    let items = [];
    let dropped = 0;
    /** @type {import("../ui/sse.js").StreamStatus} */
    let status = { kind: "connecting" };
    /** @type {ReturnType<typeof setTimeout> | null} */
    let timer = null;
    const draw = () => {
      timer ??= setTimeout(() => {
        timer = null;
        if (items.length > MOST_ROWS) {
          dropped += items.length - MOST_ROWS;
          items = items.slice(-MOST_ROWS);
        }
        setShown({ items: items.slice(), dropped, status });
      }, REDRAW_MS);
    };
    setShown({ items, dropped, status });
    const close = openStream(path, {
      query,
      endsWith: "end",
      restHidden: true,
      onEvent: ({ event, data }) => {
        if (event !== "end") items.push(...read(JSON.parse(data)));
        draw();
      },
      onStatus: (now) => {
        status = now;
        draw();
      },
    });
    return () => {
      close();
      if (timer) clearTimeout(timer);
    };
  }, [path, key]);
  return shown;
}

/**
 * @param {{id: string, node?: string | null, level?: string | null, compact?: boolean, search?: string}} props
 */
export function LogView({ id, node, level, compact = false, search = "" }) {
  const { items, dropped, status } = useStream(streamPath(id, "logs"), { node, level }, rowsOf, `${node} ${level}`);
  const [follow, setFollow] = useState(true);
  const rows = useMemo(() => {
    const text = search.trim().toLowerCase();
    return text ? items.filter((row) => row.text.toLowerCase().includes(text) || row.line.node.toLowerCase().includes(text)) : items;
  }, [items, search]);
  if (status.kind === "refused") return html`<${ProblemNote} problem=${status.problem} />`;
  const row = (/** @type {number} */ i) => html`<${Line} key=${i} row=${rows[i]} compact=${compact} />`;
  return html`<div class="logs">
    ${dropped > 0 && html`<p class="muted small">${`The oldest ${formatCount(dropped)} lines are left out here; weft logs shows all.`}</p>`}
    ${rows.length > 0 && html`<${VirtualList} className="log-list" role="log" label="Lines" count=${rows.length} rowHeight=${20} row=${row} follow=${follow} onFollow=${setFollow} />`}
    ${rows.length === 0 && (status.kind === "connecting" ? null : compact ? html`<p class="muted">${status.kind === "ended" ? "nothing" : "nothing yet"}</p>` : html`<${Empty} title=${search ? "No line has this text." : status.kind === "ended" ? "Nothing was printed or logged." : "Nothing was printed or logged yet."} />`)}
    <div class="row log-foot small muted">
      ${(rows.length > 0 || !compact) && html`<span class="number">${`${formatCount(rows.length)} ${rows.length === 1 ? "line" : "lines"}`}</span>`}
      <span>${{ connecting: "", open: "following", reconnecting: "reconnecting", ended: "", refused: "" }[status.kind]}</span>
      ${!follow && rows.length > 0 && html`<button class="link" onClick=${() => setFollow(true)}>to the end</button>`}
      ${items.length > 0 && html`<button class="link" onClick=${() => download(items, id, node)}>download</button>`}
    </div>
  </div>`;
}

/** @param {{row: Row, compact: boolean}} props */
function Line({ row, compact }) {
  const { line, text, first } = row;
  const kind = line.level === "ERROR" || line.level === "CRITICAL" ? "error" : line.level === "WARNING" ? "warning" : line.level === "DEBUG" ? "debug" : line.stream;
  return html`<div class=${`log-row log-${kind}`}>
    <button class="link log-time" title="The whole line" tabindex="-1" onClick=${() => whole(line)}>${first ? formatClock(line.at) : ""}</button>
    ${!compact && html`<button class="link log-node ellipsis" title=${`${line.node}, attempt ${line.attempt}`} tabindex="-1" onClick=${() => setQuery({ node: line.node })}>${first ? html`<bdi>${line.node}</bdi>` : ""}</button>`}
    <span class="log-level">${first ? (line.level ?? line.stream) : ""}</span>
    <bdi class="log-text">${text}</bdi>
  </div>`;
}

/** Show a line in full, wrapped. @param {LogLine} line */
function whole(line) {
  const title = `${line.node}, attempt ${line.attempt}, ${line.level ?? line.stream}`;
  openDialog((close) => html`<${Dialog} title=${title} wide onClose=${close}><p class="muted small">${formatTime(line.at)}</p>
    <pre class="break" tabindex="0">${visible(line.message.replace(ESCAPES, ""))}</pre></${Dialog}>`);
}

/** @param {Row[]} rows @param {string} id @param {string | null | undefined} node */
function download(rows, id, node) {
  const lines = rows.filter((row) => row.first).map((row) => JSON.stringify(row.line));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "application/jsonl" }));
  link.download = `${id}${node ? `-${node}` : ""}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
