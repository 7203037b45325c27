// The history of the execution: every committed event, followed as they come.

import { streamPath } from "../api.js";
import { Dialog, openDialog } from "../ui/dialog.js";
import { JsonTree, visible } from "../ui/json_tree.js";
import { Empty, ProblemNote } from "../ui/load.js";
import { html, useMemo, useState } from "../ui/preact.js";
import { setQuery } from "../ui/router.js";
import { State } from "../ui/states.js";
import { formatClock, formatCount, formatTime } from "../ui/time.js";
import { VirtualList } from "../ui/virtual_list.js";
import { useStream } from "./log_view.js";

/** @typedef {import("../types").Event} Told */

/** Return what an event says beside its type, in a line. @param {Told} event */
export function lineOf(event) {
  const parts = [];
  if (event.signal) parts.push(`signal ${event.signal}`);
  if (event.actor) parts.push(`by ${event.actor}`);
  if (event.reason) parts.push(event.reason);
  if (event.cause) parts.push(`because of ${event.cause}`);
  if (event.error) parts.push(`${event.error.code}: ${visible(event.error.message.split("\n")[0])}`);
  if (event.due_at) parts.push(`due ${formatTime(event.due_at)}`);
  if (event.worker) parts.push(`on ${event.worker}`);
  return parts.join(" · ");
}

/** @param {{id: string, generation: number, query: URLSearchParams}} props */
export function EventsTab({ id, generation, query }) {
  // Live events have no number: the history does not have them.
  const { items, dropped, status } = useStream(streamPath(id, "events"), {}, (/** @type {Told} */ event) => (event.seq ? [event] : []), String(generation));
  const [follow, setFollow] = useState(false);
  const text = (query.get("find") ?? "").toLowerCase();
  const shown = useMemo(
    () => (text ? items.filter((event) => `${event.type} ${event.node ?? ""} ${lineOf(event)}`.toLowerCase().includes(text)) : items),
    [items, text],
  );
  if (status.kind === "refused") return html`<${ProblemNote} problem=${status.problem} />`;
  const row = (/** @type {number} */ i) => {
    const event = shown[i];
    return html`<div key=${event.seq} class="event-row" role="row" aria-rowindex=${i + 1}>
      <span role="cell" class="number muted"><button class="link" aria-label=${`Event ${event.seq} in full`} onClick=${() => whole(event)}>${event.seq}</button></span>
      <span role="cell" class="mono" title=${formatTime(event.at)}>${formatClock(event.at)}</span>
      <span role="cell" class="ellipsis">${event.type}</span>
      <span role="cell">${event.state && html`<${State} name=${event.state} brief />`}</span>
      <span role="cell" class="ellipsis">${event.node && html`<button class="link ellipsis" onClick=${() => setQuery({ node: event.node })}><bdi>${event.node}</bdi></button>`}${event.attempt ? html`<span class="muted small"> ${`#${event.attempt}`}</span>` : null}</span>
      <bdi role="cell" class="ellipsis muted">${lineOf(event)}</bdi>
    </div>`;
  };
  const head = html`<div class="event-row node-head" role="row">${["No.", "At", "Event", "State", "Node", "More"].map((name) => html`<span role="columnheader">${name}</span>`)}</div>`;
  return html`<div class="row wrap tab-tools">
      <input type="search" class="search" aria-label="Find an event" placeholder="Type, node or text  ( / )" value=${query.get("find") ?? ""}
        onInput=${(/** @type {any} */ event) => setQuery({ find: event.target.value }, { replace: true })} />
      <span class="muted small number">${`${formatCount(shown.length)} events`}</span>
      <button class="chip" aria-pressed=${String(follow)} onClick=${() => setFollow(!follow)}>follow</button>
      ${dropped > 0 && html`<span class="muted small">${`the oldest ${formatCount(dropped)} are left out here`}</span>`}
    </div>
    ${shown.length
      ? html`<${VirtualList} className="event-list" label="Events" count=${shown.length} rowHeight=${28} row=${row} head=${head} follow=${follow} />`
      : status.kind !== "connecting" && html`<${Empty} title="No event fits." />`}`;
}

/** @param {Told} event */
function whole(event) {
  openDialog((close) => html`<${Dialog} title=${`Event ${event.seq}: ${event.type}`} wide onClose=${close}><${JsonTree} value=${event} label="The event" /></${Dialog}>`);
}
