// The start: what runs, what failed, what waits, and whether the server is well.

import { getOverview, getReadiness } from "../api.js";
import { firstLine, keyOf } from "../dead_letters/groups.js";
import { FirstSteps } from "../home/first_steps.js";
import { Hours } from "../home/hours.js";
import { isEmpty, totalOf } from "../home/overview.js";
import { Trend } from "../home/trend.js";
import { visible } from "../ui/json_tree.js";
import { Loading, ProblemNote, useLoad } from "../ui/load.js";
import { PageHeader } from "../ui/parts.js";
import { html } from "../ui/preact.js";
import { href, to } from "../ui/router.js";
import { stateOf } from "../ui/states.js";
import { Ago, formatCount, formatSeconds } from "../ui/time.js";
import { Slots } from "./workers.js";

export const title = "Home";

/** @typedef {import("../types").Overview} Overview */
/** @typedef {import("../types").LetterGroup} LetterGroup */

const REFRESH_MS = 4000;
const HEALTH_MS = 10_000;
const QUEUES_SHOWN = 8;

export function Page() {
  const { data, problem, reload } = useLoad(getOverview, [], { every: REFRESH_MS });
  const empty = data && isEmpty(data);
  return html`<div class="page">
    <${PageHeader} title="Home" />
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    ${data && !empty && html`<${Tiles} overview=${data} />`}
    <div class="home">
      ${data && html`<div class="home-main">${empty ? html`<${FirstSteps} />` : html`
        <section class="card stack" aria-labelledby="hours-title"><h2 id="hours-title">Executions per hour</h2><${Hours} hours=${data.hours} /></section>
        <${Failures} groups=${data.failures} />`}
      </div>`}
      <div class="home-side">
        <${Health} />
        ${data && data.due_next.length > 0 && html`<${DueNext} due=${data.due_next} />`}
        ${data && html`<${Fleet} overview=${data} />`}
      </div>
    </div>
  </div>`;
}

/** @param {{overview: Overview}} props */
function Tiles({ overview }) {
  const { executions, workers } = overview;
  const day = totalOf(overview.hours);
  const depth = overview.queues.reduce((sum, queue) => sum + queue.depth, 0);
  return html`<ul class="tiles" role="list">
    <${Tile} state="RUNNING" word="running" count=${executions.RUNNING ?? 0} link=${href("/executions", { state: "RUNNING" })} />
    <${Tile} state="PENDING" word="pending" count=${executions.PENDING ?? 0} link=${href("/executions", { state: "PENDING" })} />
    ${(executions.PAUSED ?? 0) > 0 && html`<${Tile} state="PAUSED" word="paused" count=${executions.PAUSED} link=${href("/executions", { state: "PAUSED" })} />`}
    <${Tile} state="COMPLETED" word="completed, 24 h" count=${day.COMPLETED} link=${href("/executions", { state: "COMPLETED", since: "24h" })} />
    <${Tile} state="FAILED" word="failed, 24 h" count=${day.FAILED} link=${href("/executions", { state: "FAILED", since: "24h" })} alarms />
    <${Tile} state="FAILED" sign="✉" word="dead letters" count=${overview.dead_letters} link=${href("/dead-letters")} alarms />
    ${overview.waits > 0 && html`<${Tile} state="WAITING" word=${overview.waits === 1 ? "open question" : "open questions"} count=${overview.waits} link=${href("/waits")} />`}
    <${Tile} state="QUEUED" word="tasks waiting" count=${depth} link=${href("/workers")} />
    <${Tile} state=${workers.alive ? "COMPLETED" : "FAILED"} sign=${workers.alive ? "✓" : "✕"} word=${workers.alive === 1 ? "worker" : "workers"} count=${workers.alive} link=${href("/workers")} />
  </ul>`;
}

/** A count that leads to what it counts. @param {{state: string, word: string, count: number, link: string, sign?: string, alarms?: boolean}} props */
function Tile({ state, word, count, link, sign, alarms = false }) {
  const kind = stateOf(state);
  return html`<li><a class=${`tile${alarms && count ? " alarming" : ""}`} href=${link}>
    <span class="tile-count number">${formatCount(count)}</span>
    <span class=${`state state-${alarms && !count ? "pending" : kind.css}`}><span class="tile-sign" aria-hidden="true">${sign ?? kind.sign}</span><span>${word}</span></span>
  </a></li>`;
}

/** @param {{groups: LetterGroup[]}} props */
function Failures({ groups }) {
  return html`<section class="card stack" aria-labelledby="failures-title">
    <div class="row"><h2 id="failures-title" class="grow">Recent failures</h2>${groups.length > 0 && html`<a href="#/dead-letters">All dead letters</a>`}</div>
    ${groups.length
      ? html`<ul class="failures" role="list">${groups.map((group) => html`<li key=${keyOf(group)}>
          <a class="failure-row" href=${href("/dead-letters", { open: keyOf(group) })}>
            <span class="failure-name break"><bdi>${group.workflow ?? "not stored by name"}</bdi> <span class="muted" aria-hidden="true">›</span> <bdi>${group.node}</bdi></span>
            <code class="state-failed">${group.code}</code>
            <span class="number">${`×${formatCount(group.count)}`}</span>
            <span class="muted small failure-when"><${Ago} at=${group.last_at} /></span>
            <span class="failure-said ellipsis mono"><bdi>${visible(firstLine(group.sample.error.message))}</bdi></span>
          </a></li>`)}</ul>`
      : html`<p class="muted">No node has failed for good.</p>`}
  </section>`;
}

function Health() {
  const { data, problem } = useLoad(getReadiness, [], { every: HEALTH_MS });
  const all = /** @type {[string, {ok: boolean, message: string}][]} */ (Object.entries(data?.checks ?? {}));
  // That the server does not stop is no news.
  const checks = all.filter(([name, check]) => name !== "stopping" || !check.ok);
  return html`<section class="card stack" aria-labelledby="health-title">
    <div class="row"><h2 id="health-title" class="grow">Health</h2>
      ${data && html`<${Mark} ok=${data.ready} word=${data.ready ? "ready" : "not ready"} />`}
      ${problem && html`<${Mark} ok=${false} word="no answer" />`}</div>
    <dl class="checks" aria-live="polite">${checks.map(([name, check]) => html`<div>
      <dt><${Mark} ok=${check.ok} word=${name} /></dt><dd class="break muted">${check.message}</dd>
    </div>`)}</dl>
  </section>`;
}

/** @param {{ok: boolean, word: string}} props */
function Mark({ ok, word }) {
  return html`<span class=${`state state-${ok ? "completed" : "failed"}`}><span class="state-sign" aria-hidden="true">${ok ? "✓" : "✕"}</span><span class="mark-word">${word}</span></span>`;
}

/** @param {{due: Overview["due_next"]}} props */
function DueNext({ due }) {
  return html`<section class="card stack" aria-labelledby="due-title">
    <div class="row"><h2 id="due-title" class="grow">Due next</h2><a href="#/triggers">All</a></div>
    <ol class="names" role="list">${due.map(({ trigger, at }) => html`<li key=${trigger} class="row"><a class="grow ellipsis" href=${href(to("triggers", trigger))}><bdi>${trigger}</bdi></a> <span class="nowrap muted"><${Ago} at=${at} /></span></li>`)}</ol>
  </section>`;
}

/** @param {{overview: Overview}} props */
function Fleet({ overview }) {
  const { workers } = overview;
  const queues = [...overview.queues].sort((a, b) => b.depth - a.depth || (a.name < b.name ? -1 : 1)).slice(0, QUEUES_SHOWN);
  return html`<section class="card stack" aria-labelledby="fleet-title">
    <div class="row"><h2 id="fleet-title" class="grow">Workers and queues</h2><a href="#/workers">All</a></div>
    ${workers.alive
      ? html`<div class="row"><span class="nowrap">Slots in use</span><div class="grow"><${Slots} running=${workers.running} slots=${workers.slots} /></div></div>`
      : html`<p class="state-failed">No worker is connected: executions wait. Start one by <code>weft worker</code>.</p>`}
    <${Trend} overview=${overview} />
    ${queues.length > 0 && html`<table class="fleet home-queues">
      <thead><tr><th>Queue</th><th class="number">Waiting</th><th class="number">Oldest</th></tr></thead>
      <tbody>${queues.map((queue) => html`<tr key=${queue.name}><td class="break"><bdi>${queue.name}</bdi></td><td class="number">${formatCount(queue.depth)}</td>
        <td class="number nowrap">${queue.oldest_age_seconds === null ? html`<span class="muted">–</span>` : formatSeconds(queue.oldest_age_seconds)}</td></tr>`)}</tbody>
    </table>`}
    ${overview.queues.length > QUEUES_SHOWN && html`<p class="muted small">${`and ${overview.queues.length - QUEUES_SHOWN} more queues`}</p>`}
  </section>`;
}
