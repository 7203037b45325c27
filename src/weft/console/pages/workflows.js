// Workflows by name, each with how its last executions went.

import { getStatistics, listWorkflows } from "../api.js";
import { useKeys, useRowKeys } from "../ui/keys.js";
import { Empty, Loading, ProblemNote, useLoad } from "../ui/load.js";
import { PageHeader, Pager, cursorOf } from "../ui/parts.js";
import { html } from "../ui/preact.js";
import { href, navigate, to } from "../ui/router.js";
import { Ago, formatSeconds } from "../ui/time.js";
import { Bars, share } from "../workflow/bars.js";

export const title = "Workflows";

const PAGE = 50;
const REFRESH_MS = 15_000;

/** @param {{query: URLSearchParams}} props */
export function Page({ query }) {
  const cursor = cursorOf(query);
  const { data, problem, reload } = useLoad((signal) => listWorkflows({ limit: PAGE, cursor }, signal), [cursor], { every: REFRESH_MS });
  const rows = data?.items ?? [];
  const at = useRowKeys("Workflows", rows, (row) => navigate(to("workflows", row.name)), [cursor]);
  useKeys("Workflows", { s: ["Start the row's workflow", () => rows[at] && navigate(to("workflows", rows[at].name), { tab: "start" })] });
  return html`<div class="page">
    <${PageHeader} title="Workflows" />
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    ${data && (rows.length ? html`<${Table} rows=${rows} at=${at} />` : html`<${None} />`)}
    <${Pager} query=${query} next=${data?.next_cursor} label="workflows" />
  </div>`;
}

/** @param {{rows: import("../types").Workflow[], at: number}} props */
function Table({ rows, at }) {
  return html`<div class="scroll-x"><table class="list workflow-table">
    <thead><tr>
      <th>Workflow</th><th>Last executions</th><th class="number" title="Share of the ended executions that completed">Completed</th>
      <th class="number wide" title="Half of the completed executions took no longer">p50</th>
      <th class="number wide" title="19 of 20 completed executions took no longer">p95</th>
      <th class="wide">Changed</th><th class="wide"><span class="sr-only">Start</span></th>
    </tr></thead>
    <tbody>${rows.map((row, i) => html`<${Row} key=${row.name} row=${row} current=${i === at} />`)}</tbody>
  </table></div>`;
}

/** @param {{row: import("../types").Workflow, current: boolean}} props */
function Row({ row, current }) {
  const { data, problem } = useLoad((signal) => getStatistics(row.name, undefined, signal), [row.name], { every: REFRESH_MS });
  const aliases = Object.entries(row.aliases ?? {});
  const link = to("workflows", row.name);
  return html`<tr class=${current ? "current" : ""}>
    <td class="list-name"><a class="ellipsis" href=${href(link)} title=${row.name}><bdi>${row.name}</bdi></a><span class="muted small"> v${row.version}</span>
      ${aliases.slice(0, 3).map(([alias, version]) => html`<span class="label" title=${`The alias ${alias} is version ${version}`}><bdi>${alias}</bdi> v${version}</span>`)}
    </td>
    <td>${data ? html`<${Bars} recent=${data.recent} most=${20} />` : problem && html`<span class="muted" title=${problem.message}>unknown</span>`}</td>
    <td class="number">${share(data?.success_rate)}</td>
    <td class="number wide">${formatSeconds(data?.seconds.p50)}</td>
    <td class="number wide">${formatSeconds(data?.seconds.p95)}</td>
    <td class="wide"><${Ago} at=${row.created_at} /></td>
    <td class="list-act wide"><a class="button" href=${href(link, { tab: "start" })} aria-label=${`Start ${row.name}`}>Start…</a></td>
  </tr>`;
}

function None() {
  return html`<${Empty} title="No workflow is stored here yet.">
    <p>Store a definition from a shell; it then has a page here, with a form that starts it:</p>
    <pre class="command">weft deploy flow.yaml</pre>
  </${Empty}>`;
}
