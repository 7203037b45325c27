// The fleet: the workers and what they have in hand, and the queues and what waits in them.

import { listQueues, listWorkers } from "../api.js";
import { Empty, Loading, Note, ProblemNote, useLoad } from "../ui/load.js";
import { CopyButton, PageHeader, shortId } from "../ui/parts.js";
import { html } from "../ui/preact.js";
import { Ago, formatCount, formatSeconds } from "../ui/time.js";

export const title = "Workers";

const REFRESH_MS = 2000;

/** @typedef {import("../types").Worker} Worker */
/** @typedef {import("../types").Queue} Queue */

export function Page() {
  const workers = useLoad(listWorkers, [], { every: REFRESH_MS });
  const queues = useLoad(listQueues, [], { every: REFRESH_MS });
  const list = sortedWorkers(workers.data?.items ?? []);
  return html`<div class="page">
    <${PageHeader} title="Workers and queues" about=${workers.data && html`<${Totals} workers=${list} />`} />
    <section class="stack" aria-labelledby="workers-title">
      <h2 id="workers-title">Workers</h2>
      ${workers.problem && html`<${ProblemNote} problem=${workers.problem} retry=${workers.reload} />`}
      ${!workers.data && !workers.problem && html`<${Loading} />`}
      ${workers.data && html`<${Remarks} workers=${list} />`}
      ${workers.data && (list.length ? html`<${WorkerTable} workers=${list} />` : html`<${NoWorker} />`)}
    </section>
    <section class="stack" aria-labelledby="queues-title">
      <h2 id="queues-title">Queues</h2>
      ${queues.problem && html`<${ProblemNote} problem=${queues.problem} retry=${queues.reload} />`}
      ${!queues.data && !queues.problem && html`<${Loading} />`}
      ${queues.data && (queues.data.items.length
        ? html`<${QueueTable} queues=${queues.data.items} />`
        : html`<${Empty} title="No task has come to a queue yet." />`)}
    </section>
  </div>`;
}

const ORDER = /** @type {Record<string, number>} */ ({ alive: 0, draining: 1, lost: 2 });

/** Return the workers that serve before those that are gone. @param {Worker[]} workers */
export function sortedWorkers(workers) {
  return [...workers].sort((a, b) => ORDER[a.state] - ORDER[b.state] || a.host.localeCompare(b.host) || a.pid - b.pid);
}

/**
 * Return what the living workers have in hand, of how much.
 * @param {Worker[]} workers
 */
export function totalsOf(workers) {
  const alive = workers.filter((worker) => worker.state === "alive");
  const slots = alive.reduce((sum, worker) => sum + worker.concurrency, 0);
  return { alive: alive.length, slots, running: alive.reduce((sum, worker) => sum + worker.running, 0) };
}

/** Return the versions of the workers that are not lost, if they are not all the same. @param {Worker[]} workers */
export function mixedVersions(workers) {
  const versions = [...new Set(workers.filter((worker) => worker.state !== "lost").map((worker) => worker.version))].sort();
  return versions.length > 1 ? versions : [];
}

/** @param {{workers: Worker[]}} props */
function Totals({ workers }) {
  const { alive, slots, running } = totalsOf(workers);
  return html`<span class="number">${`${formatCount(alive)} alive · ${formatCount(running)} of ${formatCount(slots)} slots in use`}</span>`;
}

/** @param {{workers: Worker[]}} props */
function Remarks({ workers }) {
  const versions = mixedVersions(workers);
  if (!versions.length) return null;
  return html`<${Note} kind="warning">${`The workers are of ${versions.length} versions: ${versions.join(", ")}.`}</${Note}>`;
}

function NoWorker() {
  return html`<${Empty} title="No worker is connected.">
    <p>Executions are accepted and wait. Start a worker with the same settings as this server:</p>
    <pre class="command">weft worker</pre>
  </${Empty}>`;
}

/** @param {{workers: Worker[]}} props */
function WorkerTable({ workers }) {
  return html`<div class="scroll-x" tabindex="0" role="group" aria-label="Table of workers"><table class="fleet workers">
    <thead><tr><th>State</th><th>Worker</th><th>Process</th><th>Slots in use</th><th class="number">Heartbeat</th><th>Queues</th><th>Version</th><th>Started</th></tr></thead>
    <tbody>${workers.map((worker) => html`<${WorkerRow} key=${worker.id} worker=${worker} />`)}</tbody>
  </table></div>`;
}

/** @param {{worker: Worker}} props */
function WorkerRow({ worker }) {
  const lost = worker.state === "lost";
  return html`<tr class=${lost ? "gone" : ""}>
    <td><${WorkerState} state=${worker.state} /></td>
    <td class="mono nowrap"><span title=${worker.id}>${shortId(worker.id)}</span> <${CopyButton} text=${worker.id} what="Id copied" /></td>
    <td class="nowrap"><bdi>${worker.host}</bdi><span class="muted">${` · ${worker.pid}`}</span></td>
    <td><${Slots} running=${lost ? 0 : worker.running} slots=${worker.concurrency} /></td>
    <td class="number nowrap">${`${formatSeconds(worker.heartbeat_age_seconds)} ago`}</td>
    <td><${Names} names=${worker.queues} /></td>
    <td class="nowrap">${worker.version}</td>
    <td class="nowrap"><${Ago} at=${worker.started_at} /></td>
  </tr>`;
}

const STATES = /** @type {Record<string, [string, string]>} */ ({ alive: ["✓", "completed"], draining: ["◐", "retry"], lost: ["✕", "failed"] });

/** @param {{state: string}} props */
function WorkerState({ state }) {
  const [sign, css] = STATES[state] ?? ["?", "pending"];
  return html`<span class=${`state state-${css}`}><span class="state-sign" aria-hidden="true">${sign}</span><span>${state}</span></span>`;
}

/** How many slots are in use, as a bar and in figures. @param {{running: number, slots: number}} props */
export function Slots({ running, slots }) {
  return html`<div class="progress slots">
    <div class="progress-bar" role="img" aria-label=${`${running} of ${slots} slots in use`}>
      ${running > 0 && html`<span class="progress-part fill-running" style=${{ flexGrow: running }}></span>`}
      <span class="slots-free" style=${{ flexGrow: Math.max(0, slots - running) }}></span>
    </div>
    <span class="progress-text number" aria-hidden="true">${`${formatCount(running)}/${formatCount(slots)}`}</span>
  </div>`;
}

const NAMES_SHOWN = 6;

/** @param {{names: string[] | null}} props */
function Names({ names }) {
  if (!names) return html`<span class="muted">every queue</span>`;
  const rest = names.slice(NAMES_SHOWN);
  return html`<span class="names-line">${names.slice(0, NAMES_SHOWN).map((name) => html`<bdi class="label">${name}</bdi>`)}
    ${rest.length > 0 && html`<span class="muted small" title=${rest.join(", ")}>${`and ${rest.length} more`}</span>`}</span>`;
}

/** @param {{queues: Queue[]}} props */
function QueueTable({ queues }) {
  const deepest = Math.max(1, ...queues.map((queue) => queue.depth));
  return html`<div class="scroll-x" tabindex="0" role="group" aria-label="Table of queues"><table class="fleet">
    <thead><tr><th>Queue</th><th>Waiting</th><th class="number">Oldest</th><th class="number">In flight</th><th class="number">Workers</th></tr></thead>
    <tbody>${queues.map((queue) => html`<tr key=${queue.name}>
      <td class="break"><bdi>${queue.name}</bdi></td>
      <td><${Depth} depth=${queue.depth} deepest=${deepest} /></td>
      <td class="number nowrap">${queue.oldest_age_seconds === null ? html`<span class="muted">–</span>` : formatSeconds(queue.oldest_age_seconds)}</td>
      <td class="number">${formatCount(queue.in_flight)}</td>
      <td class="number nowrap">${isUnserved(queue)
        ? html`<span class="state state-failed"><span class="state-sign" aria-hidden="true">✕</span><span>no worker</span></span>`
        : formatCount(queue.workers)}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

/** True if tasks wait in a queue that nobody serves. @param {{depth: number, workers: number}} queue */
export function isUnserved(queue) {
  return queue.workers === 0 && queue.depth > 0;
}

/** @param {{depth: number, deepest: number}} props */
function Depth({ depth, deepest }) {
  return html`<div class="progress depth">
    <span class="progress-text number">${formatCount(depth)}</span>
    <div class="progress-bar" aria-hidden="true">
      ${depth > 0 && html`<span class="progress-part fill-queued" style=${{ flexGrow: depth }}></span>`}
      <span class="slots-free" style=${{ flexGrow: Math.max(0, deepest - depth) }}></span>
    </div>
  </div>`;
}
