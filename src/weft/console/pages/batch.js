// A batch: how its executions stand, what became of each input, and how to cancel the rest.

import { cancelBatch, getBatch, listBatchResults } from "../api.js";
import { confirm } from "../ui/dialog.js";
import { JsonTree, visible } from "../ui/json_tree.js";
import { Empty, Loading, ProblemNote, useLoad } from "../ui/load.js";
import { CopyButton, PageHeader, Pager, ProgressBar, cursorOf, shortId } from "../ui/parts.js";
import { html, useEffect, useState } from "../ui/preact.js";
import { href, to } from "../ui/router.js";
import { EXECUTION_STATES, State, isTerminal, stateOf } from "../ui/states.js";
import { Ago, Duration, formatCount } from "../ui/time.js";
import { say, sayProblem } from "../ui/toast.js";

export const title = (/** @type {Record<string, string>} */ { id }) => `Batch ${shortId(id)}`;

/** @typedef {import("../types").Batch} Batch */
/** @typedef {import("../types").BatchResult} BatchResult */

const PAGE = 50;
const MOST_TEXT = 160;
const REFRESH_MS = 2000;

/** @param {{params: Record<string, string>, query: URLSearchParams}} props */
export function Page({ params, query }) {
  const { id } = params;
  const [every, setEvery] = useState(REFRESH_MS);
  const { data: batch, problem, reload } = useLoad((signal) => getBatch(id, signal), [id], { every });
  const ended = batch ? isTerminal(batch.state) : false;
  useEffect(() => setEvery(ended ? 0 : REFRESH_MS), [ended]);
  if (!batch) return html`<div class="page">${problem ? html`<${ProblemNote} problem=${problem} retry=${reload} />` : html`<${Loading} />`}</div>`;
  const heading = html`<a href=${href(to("workflows", batch.workflow), { version: batch.version })}><bdi>${batch.workflow}</bdi></a> <span class="muted small">v${batch.version}</span>`;
  return html`<div class="page">
    <${PageHeader} title=${heading} about=${html`batch <code class="break">${id}</code> <${CopyButton} text=${id} what="Id copied" />`}
      actions=${!ended && html`<${Cancel} batch=${batch} changed=${reload} />`}>
      <div class="row wrap batch-line">
        <${State} name=${batch.state} />
        <span class="muted">created <${Ago} at=${batch.created_at} /></span>
        <span class="muted">${ended ? "took" : "for"} <${Duration} from=${batch.created_at} until=${batch.finished_at} /></span>
        ${batch.retried > 0 && html`<span class="muted">${`${formatCount(batch.retried)} retried`}</span>`}
      </div>
    </${PageHeader}>
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    <section class="card batch-counts" aria-label="Executions by state">
      <${ProgressBar} counts=${batch.counts} of="executions" text />
      <${CountLinks} batch=${batch} />
    </section>
    <${Results} id=${id} query=${query} every=${every} ended=${ended} />
  </div>`;
}

/** @param {{batch: Batch}} props */
function CountLinks({ batch }) {
  const shown = EXECUTION_STATES.filter((name) => batch.counts[name]);
  return html`<p class="counts">
    ${shown.map((name) => {
      const state = stateOf(name);
      return html`<a class=${`state state-${state.css}`} href=${href("/executions", { batch: batch.id, state: name })} title="Show these executions">
        <span class="state-sign" aria-hidden="true">${state.sign}</span><span><span class="number">${formatCount(batch.counts[name])}</span> ${state.word}</span>
      </a>`;
    })}
    <a href=${href("/executions", { batch: batch.id })}>${`all ${formatCount(batch.total)} as executions`}</a>
  </p>`;
}

/** @param {{batch: Batch, changed: () => void}} props */
function Cancel({ batch, changed }) {
  const [busy, setBusy] = useState(false);
  const open = EXECUTION_STATES.filter((name) => !isTerminal(name)).reduce((sum, name) => sum + (batch.counts[name] ?? 0), 0);
  const cancel = async () => {
    const body = html`<p>${`${formatCount(open)} of ${formatCount(batch.total)} executions have not ended. Each of them is cancelled: no attempt starts any more, and what runs now is told to stop.`}</p>`;
    if (!(await confirm({ title: "Cancel this batch?", body, verb: "Cancel the batch", danger: true }))) return;
    setBusy(true);
    try {
      await cancelBatch(batch.id);
      say("The batch is cancelled.");
      changed();
    } catch (error) {
      sayProblem(error, "Not cancelled");
    }
    setBusy(false);
  };
  return html`<button class="danger" disabled=${busy} onClick=${cancel}>Cancel…</button>`;
}

/** @param {{id: string, query: URLSearchParams, every: number, ended: boolean}} props */
function Results({ id, query, every, ended }) {
  const cursor = cursorOf(query);
  const { data, problem, reload } = useLoad((signal) => listBatchResults(id, { limit: PAGE, cursor }, signal), [id, cursor, ended], { every });
  const rows = data?.items ?? [];
  return html`<section class="stack">
    <h2>Results</h2>
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    ${data && !rows.length && html`<${Empty} title="There are no results on this page." />`}
    ${rows.length > 0 && html`<div class="scroll-x"><table class="list result-table">
      <thead><tr><th class="number">Input</th><th>State</th><th class="wide">Execution</th><th>Output or error</th></tr></thead>
      <tbody>${rows.map((row) => html`<${Result} key=${row.index} row=${row} />`)}</tbody>
    </table></div>`}
    <${Pager} query=${query} next=${data?.next_cursor} label="results" />
  </section>`;
}

/** @param {{row: BatchResult}} props */
function Result({ row }) {
  const link = href(to("executions", row.execution));
  return html`<tr>
    <td class="number"><a href=${link} title="Open the execution">${formatCount(row.index)}</a></td>
    <td><${State} name=${row.state} /></td>
    <td class="wide mono"><a class="exec-id" href=${link} title=${row.execution}>${shortId(row.execution)}</a></td>
    <td class="break result">${row.error
      ? html`<span class="state-failed"><code>${row.error.code}</code> <bdi>${visible(cut(row.error.message))}</bdi></span>`
      : isTerminal(row.state) && html`<${Output} value=${row.output} />`}</td>
  </tr>`;
}

/** @param {{value: any}} props */
function Output({ value }) {
  const [open, setOpen] = useState(false);
  const text = value === undefined ? "null" : JSON.stringify(value);
  if (open) return html`<${JsonTree} value=${value} label="Output" />`;
  return html`<code><bdi>${visible(cut(text))}</bdi></code>${(text.length > MOST_TEXT || (value !== null && typeof value === "object")) && html` <button class="link small" onClick=${() => setOpen(true)}>open</button>`}`;
}

/** @param {string} text */
function cut(text) {
  return text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text;
}
