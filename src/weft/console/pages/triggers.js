// Triggers by name, each with when it is due next; a form for a new one; and the events that came in.

import { listInboundEvents, listTriggers } from "../api.js";
import { Dialog, openDialog } from "../ui/dialog.js";
import { JsonTree } from "../ui/json_tree.js";
import { useKeys, useRowKeys } from "../ui/keys.js";
import { Empty, Loading, ProblemNote, useLoad } from "../ui/load.js";
import { PageHeader, Pager, Tabs, cursorOf, shortId } from "../ui/parts.js";
import { html } from "../ui/preact.js";
import { href, navigate, setQuery, to } from "../ui/router.js";
import { SearchField } from "../ui/search_field.js";
import { Ago, formatCount } from "../ui/time.js";
import { TriggerForm } from "../triggers/form.js";
import { sourceOf } from "../triggers/text.js";

export const title = "Triggers";

const PAGE = 50;
const REFRESH_MS = 4000;
const MOST_LINKS = 5;

/** @param {{query: URLSearchParams}} props */
export function Page({ query }) {
  const isEvents = query.get("tab") === "events";
  const isNew = query.get("tab") === "new";
  return html`<div class="page">
    <${PageHeader} title="Triggers" actions=${!isNew && html`<a class="button" href=${href("/triggers", { tab: "new" })}>New trigger…</a>`} />
    <${Tabs} label="Parts of triggers" current=${isEvents ? "events" : isNew ? "" : "list"} tabs=${[
      { id: "list", name: "Triggers", href: "#/triggers" },
      { id: "events", name: "Inbound events", href: href("/triggers", { tab: "events" }) },
    ]} />
    ${isNew && html`<${TriggerForm} onStored=${(/** @type {any} */ stored) => navigate(to("triggers", stored.name))} onClose=${() => navigate("/triggers")} />`}
    ${isEvents ? html`<${Inbound} query=${query} />` : !isNew && html`<${List} query=${query} />`}
  </div>`;
}

/** @param {{query: URLSearchParams}} props */
function List({ query }) {
  const cursor = cursorOf(query);
  const { data, problem, reload } = useLoad((signal) => listTriggers({ limit: PAGE, cursor }, signal), [cursor], { every: REFRESH_MS });
  const rows = data?.items ?? [];
  const at = useRowKeys("Triggers", rows, (row) => navigate(to("triggers", row.name)), [cursor]);
  useKeys("Triggers", { n: ["New trigger", () => setQuery({ tab: "new" })] });
  return html`${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    ${data && (rows.length ? html`<${Table} rows=${rows} at=${at} />` : html`<${Empty} title="No trigger is stored here.">
      <p>A trigger starts executions of a workflow by itself: at due times, for events that come in, or for calls of a webhook.</p>
      <p><a class="button" href=${href("/triggers", { tab: "new" })}>New trigger…</a></p>
    </${Empty}>`)}
    <${Pager} query=${query} next=${data?.next_cursor} label="triggers" />`;
}

/** @param {{rows: import("../types").Trigger[], at: number}} props */
function Table({ rows, at }) {
  return html`<div class="scroll-x"><table class="list">
    <thead><tr><th>Trigger</th><th class="wide">Workflow</th><th class="wide">Starts it</th><th>Next</th><th class="number wide" title="Starts that its overlap left out">Skipped</th><th>State</th></tr></thead>
    <tbody>${rows.map((row, i) => html`<tr key=${row.name} class=${i === at ? "current" : ""}>
      <td class="list-name"><a class="ellipsis" href=${href(to("triggers", row.name))} title=${row.name}><bdi>${row.name}</bdi></a></td>
      <td class="wide break"><bdi>${row.workflow}</bdi> <span class="muted small">${row.version}</span></td>
      <td class="wide break mono"><bdi>${sourceOf(row)}</bdi></td>
      <td><${Ago} at=${row.next_at} /></td>
      <td class="number wide">${row.skipped ? formatCount(row.skipped) : html`<span class="muted">0</span>`}</td>
      <td><${Mark} trigger=${row} /></td>
    </tr>`)}</tbody>
  </table></div>`;
}

/** @param {{trigger: import("../types").Trigger}} props */
export function Mark({ trigger: { enabled, error } }) {
  const [css, sign, word] = !enabled ? ["cancelled", "⊘", "disabled"] : error ? ["failed", "✕", "failed last"] : ["completed", "✓", "enabled"];
  return html`<span class=${`state state-${css}`} title=${error?.message}><span class="state-sign" aria-hidden="true">${sign}</span><span>${word}</span></span>`;
}

/** @param {{query: URLSearchParams}} props */
function Inbound({ query }) {
  const cursor = cursorOf(query);
  const type = query.get("q");
  const { data, problem, reload } = useLoad((signal) => listInboundEvents({ limit: PAGE, type, cursor }, signal), [type, cursor], { every: REFRESH_MS });
  const rows = data?.items ?? [];
  return html`<div><${SearchField} value=${type ?? ""} label="Events of a type" hint="Type of event" besides=${{ after: null }} /></div>
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    ${data && (rows.length
      ? html`<div class="scroll-x"><table class="list inbound">
          <thead><tr><th>Came</th><th>Type</th><th class="wide">Source</th><th class="wide">Id</th><th>What it did</th></tr></thead>
          <tbody>${rows.map((row) => html`<tr key=${`${row.source} ${row.id}`}>
            <td><${Ago} at=${row.received_at} /></td>
            <td class="break"><button class="link break" aria-label=${`${row.type}, event ${row.id} in full`} onClick=${() => whole(row)}><bdi>${row.type}</bdi></button></td>
            <td class="wide break"><bdi>${row.source}</bdi></td><td class="wide break mono"><bdi>${row.id}</bdi></td>
            <td class="break"><${Effect} event=${row} /></td>
          </tr>`)}</tbody></table></div>`
      : html`<${Empty} title=${type ? "No event of this type came." : "No event came in yet."}><p>Other services send them to <code>POST /v1/events</code>, as CloudEvents 1.0.</p></${Empty}>`)}
    <${Pager} query=${query} next=${data?.next_cursor} label="events" />`;
}

/** @param {{event: import("../types").InboundEvent}} props */
function Effect({ event: { started, answered } }) {
  if (!started.length && !answered.length) return html`<span class="muted">nothing</span>`;
  const more = Math.max(0, started.length - MOST_LINKS) + Math.max(0, answered.length - MOST_LINKS);
  return html`<span class="effects">
    ${started.slice(0, MOST_LINKS).map((id) => html`<span>started <a href=${href(to("executions", id))}>${shortId(id)}</a></span>`)}
    ${answered.slice(0, MOST_LINKS).map(({ execution, node }) => html`<span>answered <a href=${href(to("executions", execution), { node })}><bdi>${node}</bdi> of ${shortId(execution)}</a></span>`)}
    ${more > 0 && html`<span class="muted">${`and ${formatCount(more)} more`}</span>`}
  </span>`;
}

/** @param {import("../types").InboundEvent} event */
function whole(event) {
  openDialog((close) => html`<${Dialog} title=${`Event ${event.id}`} wide onClose=${close}><${JsonTree} value=${event} label="Event" /></${Dialog}>`);
}
