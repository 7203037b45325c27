// How executions of a workflow went: the last ones as bars, their durations, and the durations of the nodes.

import { getStatistics } from "../api.js";
import { Empty, Loading, ProblemNote, useLoad } from "../ui/load.js";
import { html } from "../ui/preact.js";
import { href, to } from "../ui/router.js";
import { State } from "../ui/states.js";
import { Ago, Duration, formatCount, formatSeconds } from "../ui/time.js";
import { Bars, share } from "./bars.js";

const MOST_NODES = 200;
const REFRESH_MS = 5000;

/** @param {{name: string, version: string | null}} props `version`: of this one alone; null: of all */
export function ExecutionsTab({ name, version }) {
  const { data, problem, reload } = useLoad((signal) => getStatistics(name, version ?? undefined, signal), [name, version], { every: REFRESH_MS });
  if (!data) return problem ? html`<${ProblemNote} problem=${problem} retry=${reload} />` : html`<${Loading} />`;
  if (!data.recent.length) {
    return html`<${Empty} title=${version ? "This version never ran." : "This workflow never ran."}><a class="button" href=${href(to("workflows", name), { version, tab: "start" })}>Start it…</a></${Empty}>`;
  }
  const { p50, p95, mean } = data.seconds;
  return html`<div class="stack history">
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    <dl class="figures">
      <div><dt>Completed</dt><dd>${share(data.success_rate)}</dd></div>
      <div><dt>Half took at most</dt><dd>${formatSeconds(p50)}</dd></div>
      <div><dt>19 of 20 took at most</dt><dd>${formatSeconds(p95)}</dd></div>
      <div><dt>Mean</dt><dd>${formatSeconds(mean)}</dd></div>
    </dl>
    <section class="card stack"><${Bars} recent=${data.recent} most=${50} large />
      <p class="muted small">${`The last ${data.recent.length}, the newest at the right; the highest took ${formatSeconds(Math.max(0, ...data.recent.map((one) => one.seconds ?? 0)))}.`}</p></section>
    <div class="history-tables">
      <section class="stack">
        <h2>Last executions</h2>
        <table class="list"><thead><tr><th>State</th><th>Execution</th><th class="wide">Started</th><th class="number">Duration</th></tr></thead>
          <tbody>${data.recent.slice(0, 15).map((one) => html`<tr key=${one.id}>
            <td><${State} name=${one.state} /></td>
            <td class="mono"><a class="exec-id" href=${href(to("executions", one.id))} title=${one.id}>${`…${one.id.slice(-12)}`}</a></td>
            <td class="wide"><${Ago} at=${one.started_at} /></td>
            <td class="number"><${Duration} from=${one.started_at} until=${one.finished_at} /></td>
          </tr>`)}</tbody></table>
        <p><a href=${href("/executions", { workflow: name, version })}>All executions</a></p>
      </section>
      ${data.nodes && Object.keys(data.nodes).length > 0 && html`<${NodeTimes} nodes=${data.nodes} />`}
    </div>
  </div>`;
}

/** @param {{nodes: Record<string, {p50: number | null, failures: number}>}} props */
function NodeTimes({ nodes }) {
  const rows = Object.entries(nodes).sort(([, a], [, b]) => (b.p50 ?? 0) - (a.p50 ?? 0));
  const longest = rows[0]?.[1].p50 ?? 0;
  return html`<section class="stack">
    <h2>Nodes, the longest first</h2>
    <table class="list"><thead><tr><th>Node</th><th>Half took at most</th><th class="number">Failures</th></tr></thead>
      <tbody>${rows.slice(0, MOST_NODES).map(([id, { p50, failures }]) => html`<tr key=${id}>
        <td class="list-name"><bdi class="ellipsis" title=${id}>${id}</bdi></td>
        <td><span class="node-time"><span class="node-time-bar" style=${{ width: `${longest ? Math.round((100 * (p50 ?? 0)) / longest) : 0}px` }}></span><span class="number">${formatSeconds(p50)}</span></span></td>
        <td class="number">${failures ? html`<span class="state-failed">${formatCount(failures)}</span>` : html`<span class="muted">0</span>`}</td>
      </tr>`)}</tbody></table>
    ${rows.length > MOST_NODES && html`<p class="muted">${`and ${formatCount(rows.length - MOST_NODES)} more`}</p>`}
  </section>`;
}
