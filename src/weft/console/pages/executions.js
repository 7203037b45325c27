// Executions, newest first: a list of any length that fills itself as it is scrolled, and lives while it is seen.

import { bulk } from "../executions/bulk.js";
import { Filters } from "../executions/filters.js";
import { callQuery, viewText } from "../executions/query.js";
import { useList } from "../executions/use_list.js";
import { firstLine } from "../dead_letters/groups.js";
import { visible } from "../ui/json_tree.js";
import { useKeys } from "../ui/keys.js";
import { Empty, Loading, ProblemNote } from "../ui/load.js";
import { Labels, PageHeader, ProgressBar, copyText, shortId } from "../ui/parts.js";
import { html, useEffect, useMemo, useState } from "../ui/preact.js";
import { href, navigate, setQuery, to } from "../ui/router.js";
import { State } from "../ui/states.js";
import { Ago, Duration, formatCount } from "../ui/time.js";
import { VirtualList } from "../ui/virtual_list.js";

export const title = "Executions";

/** @typedef {import("../types").Execution} Execution */

/** @param {{query: URLSearchParams}} props */
export function Page({ query }) {
  const key = viewText(query);
  const wanted = useMemo(() => callQuery(query, Date.now()), [key]);
  const { rows, problem, more, reload, hasMore } = useList(wanted, key);
  // By its id: a new execution at the top moves every row, and the keys must stay with the one that is marked.
  const [current, setCurrent] = useState("");
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const narrow = useNarrow();
  useEffect(() => (setCurrent(""), setChosen(new Set())), [key]);
  const list = rows ?? [];
  const at = list.findIndex((one) => one.id === current);
  const picked = list.filter((row) => chosen.has(row.id));
  const toggle = (/** @type {string} */ id) =>
    setChosen((old) => {
      const next = new Set(old);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  const move = (/** @type {number} */ step) => setCurrent(list[Math.max(0, Math.min(list.length - 1, at + step))]?.id ?? "");
  const open = () => list[at] && navigate(to("executions", list[at].id));
  useKeys("Executions", {
    j: ["Next row", () => move(1)],
    k: ["Row before", () => move(-1)],
    Enter: ["Open the row", open],
    x: ["Choose the row", () => list[at] && toggle(list[at].id)],
    c: ["Copy the row's id", () => list[at] && copyText(list[at].id, "Id copied")],
    Escape: ["Choose none", () => setChosen(new Set())],
  });
  const act = async (/** @type {"cancel" | "retry"} */ what) => {
    if (await bulk(what, picked)) {
      setChosen(new Set());
      reload();
    }
  };
  const all = picked.length > 0 && picked.length === list.length;
  const row = (/** @type {number} */ i) => html`<${Row} key=${list[i].id} row=${list[i]} current=${i === at} chosen=${chosen.has(list[i].id)} toggle=${toggle} index=${i} narrow=${narrow} />`;
  const head = !narrow && html`<div class="exec-row exec-head" role="row">
    <span role="columnheader"><input type="checkbox" aria-label="Choose all that are loaded" checked=${all}
      onChange=${() => setChosen(all ? new Set() : new Set(list.map((one) => one.id)))} /></span>
    ${["State", "Workflow", "Execution", "Progress", "Created", "Duration", "Error and labels"].map((name) => html`<span role="columnheader">${name}</span>`)}
  </div>`;
  const actions = picked.length
    ? html`<span class="number">${`${formatCount(picked.length)} chosen`}</span>
        <button onClick=${() => act("retry")}>Retry…</button>
        <button class="danger" onClick=${() => act("cancel")}>Cancel…</button>
        <button class="plain" onClick=${() => setChosen(new Set())}>Choose none</button>`
    : null;
  return html`<div class="page page-full executions">
    <${PageHeader} title="Executions" about=${rows && html`<span aria-live="polite">${`${formatCount(list.length)}${hasMore ? " loaded, more below" : ""}`}</span>`} actions=${actions} />
    <${Filters} query=${query} />
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!rows && !problem && html`<${Loading} />`}
    ${rows && (list.length
      ? html`<${VirtualList} className="exec-list" label="Executions" count=${list.length} rowHeight=${narrow ? 60 : 34} row=${row} head=${head} onNearEnd=${more} shown=${at} />`
      : html`<${None} filtered=${key !== ""} />`)}
  </div>`;
}

/** @param {{row: Execution, current: boolean, chosen: boolean, toggle: (id: string) => void, index: number, narrow: boolean}} props */
function Row({ row, current, chosen, toggle, index, narrow }) {
  const link = href(to("executions", row.id));
  const name = row.workflow ?? "not stored by name";
  const version = row.version ? html`<span class="muted small"> v${row.version}</span>` : null;
  const generation = row.generation > 1 ? html` <span class="muted small" title="Generation: it was retried">↻${row.generation}</span>` : null;
  const failed = row.error ? html`<span class="exec-error ellipsis" title=${visible(row.error.message.slice(0, 2000))}><bdi>${visible(firstLine(row.error.message))}</bdi></span>` : null;
  const kind = `exec-row${current ? " current" : ""}${chosen ? " chosen" : ""}`;
  if (narrow) {
    return html`<div class=${`${kind} exec-narrow`} role="row" aria-rowindex=${index + 1}>
      <span role="cell" class="row"><${State} name=${row.state} brief /><a class="grow ellipsis" href=${link}><bdi>${name}</bdi>${version}</a><${Duration} from=${row.started_at} until=${row.finished_at} /></span>
      <span role="cell" class="row"><${ProgressBar} counts=${row.counts} text /><span class="muted small ellipsis"><${Ago} at=${row.created_at} /></span></span>
    </div>`;
  }
  return html`<div class=${kind} role="row" aria-rowindex=${index + 1}>
    <span role="cell"><input type="checkbox" aria-label=${`Choose ${row.id}`} checked=${chosen} onChange=${() => toggle(row.id)} /></span>
    <span role="cell"><${State} name=${row.state} />${generation}</span>
    <span role="cell" class="ellipsis"><a class="exec-name" href=${link} title=${name}><bdi>${name}</bdi>${version}</a></span>
    <span role="cell" class="mono ellipsis"><a class="exec-id" href=${link} title=${row.id}>${shortId(row.id)}</a></span>
    <span role="cell"><${ProgressBar} counts=${row.counts} text /></span>
    <span role="cell" class="ellipsis"><${Ago} at=${row.created_at} /></span>
    <span role="cell" class="exec-duration"><${Duration} from=${row.started_at} until=${row.finished_at} /></span>
    <span role="cell" class="row exec-last">${failed}<${Labels} labels=${row.labels} onPick=${(/** @type {string} */ label) => setQuery({ label })} /></span>
  </div>`;
}

/** @param {{filtered: boolean}} props */
function None({ filtered }) {
  if (filtered) {
    return html`<${Empty} title="No execution fits these filters."><button onClick=${() => navigate("/executions")}>Show all</button></${Empty}>`;
  }
  return html`<${Empty} title="Nothing has run here yet.">
    <p>Store a workflow and start it, from a shell or from its page:</p>
    <pre class="command">weft deploy flow.yaml${"\n"}weft start NAME --input key=value</pre>
  </${Empty}>`;
}

/** True if the window is too narrow for columns. */
function useNarrow() {
  const [media] = useState(() => matchMedia("(max-width: 720px)"));
  const [narrow, setNarrow] = useState(media.matches);
  useEffect(() => {
    const changed = () => setNarrow(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, []);
  return narrow;
}
