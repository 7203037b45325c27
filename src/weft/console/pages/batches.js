// Batches, newest first: how many of the executions of each are in which state.

import { listBatches } from "../api.js";
import { useRowKeys } from "../ui/keys.js";
import { Empty, Loading, ProblemNote, useLoad } from "../ui/load.js";
import { PageHeader, Pager, ProgressBar, cursorOf, shortId } from "../ui/parts.js";
import { html, useEffect, useState } from "../ui/preact.js";
import { href, navigate, to } from "../ui/router.js";
import { State, isTerminal } from "../ui/states.js";
import { Ago, Duration, formatCount } from "../ui/time.js";

export const title = "Batches";

const PAGE = 50;

/** @param {{query: URLSearchParams}} props */
export function Page({ query }) {
  const cursor = cursorOf(query);
  const [every, setEvery] = useState(3000);
  const { data, problem, reload } = useLoad((signal) => listBatches({ limit: PAGE, cursor }, signal), [cursor], { every });
  const rows = data?.items ?? [];
  const runs = rows.some((row) => !isTerminal(row.state));
  useEffect(() => setEvery(runs ? 3000 : 15_000), [runs]);
  const at = useRowKeys("Batches", rows, (row) => navigate(to("batches", row.id)), [cursor]);
  return html`<div class="page">
    <${PageHeader} title="Batches" />
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    ${data && (rows.length ? html`<${Table} rows=${rows} at=${at} />` : html`<${None} />`)}
    <${Pager} query=${query} next=${data?.next_cursor} label="batches" />
  </div>`;
}

/** @param {{rows: import("../types").Batch[], at: number}} props */
function Table({ rows, at }) {
  return html`<div class="scroll-x"><table class="list batch-table">
    <thead><tr><th>State</th><th>Workflow</th><th class="wide">Batch</th><th>Executions</th><th class="number wide">Failed</th><th class="wide">Created</th><th class="number wide">Duration</th></tr></thead>
    <tbody>${rows.map((row, i) => {
      const link = href(to("batches", row.id));
      const failed = row.counts.FAILED ?? 0;
      return html`<tr key=${row.id} class=${i === at ? "current" : ""}>
        <td><${State} name=${row.state} /></td>
        <td class="list-name"><a class="ellipsis" href=${link} title=${row.workflow}><bdi>${row.workflow}</bdi></a><span class="muted small"> v${row.version}</span></td>
        <td class="wide mono"><a class="exec-id" href=${link} title=${row.id}>${shortId(row.id)}</a></td>
        <td class="batch-progress"><${ProgressBar} counts=${row.counts} of="executions" text /></td>
        <td class="number wide">${failed ? html`<span class="state-failed">${formatCount(failed)}</span>` : html`<span class="muted">0</span>`}</td>
        <td class="wide"><${Ago} at=${row.created_at} /></td>
        <td class="number wide"><${Duration} from=${row.created_at} until=${row.finished_at} /></td>
      </tr>`;
    })}</tbody>
  </table></div>`;
}

function None() {
  return html`<${Empty} title="No batch was started here yet.">
    <p>A batch starts one execution of a workflow for each line of a file:</p>
    <pre class="command">weft batch NAME inputs.jsonl</pre>
  </${Empty}>`;
}
