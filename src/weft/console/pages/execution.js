// One execution: where it stands, what can be done, and seven views of it; beside them the chosen node.

import { firstLine } from "../dead_letters/groups.js";
import { getExecution, getTimeline, getTopology } from "../api.js";
import { Actions } from "../execution/actions.js";
import { DataTab } from "../execution/tab_data.js";
import { DefinitionTab } from "../execution/tab_definition.js";
import { EventsTab } from "../execution/tab_events.js";
import { GraphTab } from "../execution/tab_graph.js";
import { LogsTab } from "../execution/tab_logs.js";
import { NodesTab } from "../execution/tab_nodes.js";
import { TimelineTab } from "../execution/tab_timeline.js";
import { Failure, NodeSheet } from "../execution/node_sheet.js";
import { LiveBadge, useLive } from "../execution/use_live.js";
import { visible } from "../ui/json_tree.js";
import { useKeys } from "../ui/keys.js";
import { Loading, ProblemNote, useLoad } from "../ui/load.js";
import { useCommands } from "../ui/palette.js";
import { CopyButton, Counts, Labels, PageHeader, ProgressBar, Tabs, shortId } from "../ui/parts.js";
import { html, useEffect, useMemo, useRef, useState } from "../ui/preact.js";
import { href, navigate, setQuery, to } from "../ui/router.js";
import { State, countsOf, isTerminal } from "../ui/states.js";
import { Ago, Duration, formatClock, formatCount, formatSeconds, useNow } from "../ui/time.js";

/** @param {Record<string, string>} params */
export const title = (params) => `Execution ${shortId(params.id)}`;

const TABS = [["graph", "Graph"], ["timeline", "Timeline"], ["nodes", "Nodes"], ["logs", "Logs"], ["events", "Events"], ["data", "Input and output"], ["definition", "Definition"]];
// Above these, details of all nodes are not read, and timelines more seldom.
const MOST_DETAILS = 5000;
const LARGE = 1000;

/** @param {{params: {id: string}, query: URLSearchParams}} props */
export function Page({ params, query }) {
  const { id } = params;
  const [turn, setTurn] = useState(0);
  const loaded = useLoad((signal) => getExecution(id, "none", signal), [id]);
  const { source, live, status } = useLive(id, turn);
  const execution = useKept(loaded.data);
  const topology = useLoad(async () => (execution ? getTopology(id, execution.digest) : null), [id, execution?.digest]).data ?? undefined;
  const state = live && status.kind !== "connecting" ? live.state : execution?.state;
  // The live state says that something changed; what else there is to know is read then.
  const asked = useRef("");
  useEffect(() => {
    if (!execution || !live) return;
    const now = `${live.state} ${live.generation}`;
    if (asked.current !== "" && asked.current !== now) loaded.reload();
    asked.current = now;
  }, [live?.state, live?.generation, execution !== null]);
  useSeen(() => isTerminal(state ?? "") && loaded.reload());
  const generation = execution?.generation ?? 0;
  const known = useRef(0);
  useEffect(() => {
    // A new generation of an execution that had ended: its stream was closed.
    if (known.current && generation > known.current) setTurn((n) => n + 1);
    known.current = generation;
  }, [generation]);
  if (loaded.problem && !execution) return html`<div class="page"><${Missing} problem=${loaded.problem} retry=${loaded.reload} /></div>`;
  if (!execution || !state) return html`<div class="page"><${Loading} /></div>`;
  return html`<${Shown} id=${id} execution=${execution} state=${state} live=${live} source=${source} status=${status} topology=${topology} query=${query}
    changed=${() => (loaded.reload(), setTurn((n) => n + 1))} />`;
}

/** @param {{problem: import("../api.js").Problem, retry: () => void}} props */
function Missing({ problem, retry }) {
  if (!problem.isMissing) return html`<${ProblemNote} problem=${problem} retry=${retry} />`;
  return html`<h1>There is no such execution</h1><p class="muted">Its id is wrong, or it is older than what this server keeps.</p><p><a href=${href("/executions")}>All executions</a></p>`;
}

/**
 * @param {{id: string, execution: import("../types").Execution, state: string, live: import("../live.js").Live | null,
 *   source: import("../execution/use_live.js").Source, status: import("../live.js").LiveStatus,
 *   topology: import("../types").Topology | undefined, query: URLSearchParams, changed: () => void}} props
 */
function Shown({ id, execution, state, live, source, status, topology, query, changed }) {
  const tab = TABS.some(([name]) => name === query.get("tab")) ? /** @type {string} */ (query.get("tab")) : "graph";
  const node = query.get("node");
  const ended = isTerminal(state);
  const size = topology?.nodes.length ?? 0;
  const timeline = useLoad(
    async (signal) => (ended && tab !== "timeline" ? null : getTimeline(id, signal)),
    [id, execution.generation, ended && tab !== "timeline"],
    { every: ended ? 0 : size > LARGE ? 15_000 : tab === "timeline" ? 2000 : 5000 },
  );
  const wantsDetails = size > 0 && size <= MOST_DETAILS && (tab === "nodes" || tab === "graph" || node !== null);
  const details = useLoad(
    async (signal) => (wantsDetails ? new Map(((await getExecution(id, "brief", signal)).nodes ?? []).map((one) => [one.id, one])) : null),
    [id, execution.generation, wantsDetails, state],
    { every: ended ? 0 : size > LARGE ? 10_000 : 3000 },
  );
  const kept = useKept(details.data ?? undefined);
  const states = live && size && live.states.length === size ? live.states : null;
  const index = node !== null && topology ? topology.nodes.indexOf(node) : -1;
  const frame = live && `${live.seq} ${live.at} ${live.generation}`;
  // As the graph and the list of nodes have it, where a scheduled retry is a state of its own.
  const counts = useMemo(() => (states ? countsOf(states) : (live?.counts ?? execution.counts)), [states, frame, execution]);
  const here = (/** @type {string} */ name) => setQuery({ tab: name === "graph" ? null : name });
  useKeys("Execution", {
    Escape: ["Close the node", () => setQuery({ node: null })],
    ...Object.fromEntries(TABS.map(([name, word], i) => [String(i + 1), [word, () => here(name)]])),
  });
  useCommands(() => [
    ...TABS.map(([name, word], i) => ({ name: word, hint: "of this execution", keys: String(i + 1), act: () => here(name) })),
    ...(topology?.nodes.slice(0, 2000) ?? []).map((name) => ({ name, hint: "node of this execution", act: () => setQuery({ node: name }) })),
  ]);
  const nodesProps = { topology, states, frame, details: kept, node, query };
  return html`<div class="page page-full execution">
    <${Head} execution=${execution} state=${state} status=${status} counts=${counts} ended=${ended} expected=${ended ? null : (timeline.data?.expected ?? null)}
      actions=${html`<${Actions} execution=${execution} state=${state} node=${node} nodes=${topology?.nodes ?? []} changed=${changed} />`} />
    <${Tabs} label="Views of this execution" current=${tab} tabs=${TABS.map(([name, word]) => ({ id: name, name: word, href: tabLink(id, query, name), count: name === "nodes" && size ? size : null }))} />
    <div class=${`execution-body${index >= 0 ? " with-sheet" : ""}`}>
      <div class="tab-box">
        ${!topology && ["graph", "timeline", "nodes"].includes(tab) ? html`<${Loading} />` : null}
        ${topology && tab === "graph" && html`<${GraphTab} topology=${topology} source=${source} node=${node} nodesProps=${nodesProps} />`}
        ${topology && tab === "timeline" && html`<${TimelineTab} topology=${topology} loaded=${timeline} node=${node} by=${query.get("by") ?? "node"} />`}
        ${topology && tab === "nodes" && html`<${NodesTab} ...${nodesProps} />`}
        ${tab === "logs" && html`<${LogsTab} id=${id} generation=${execution.generation} query=${query} node=${node} />`}
        ${tab === "events" && html`<${EventsTab} id=${id} generation=${execution.generation} query=${query} />`}
        ${tab === "data" && html`<${DataTab} execution=${execution} />`}
        ${tab === "definition" && html`<${DefinitionTab} execution=${execution} topology=${topology} node=${node} />`}
      </div>
      ${node !== null && topology && index >= 0 && html`<${NodeSheet} id=${id} node=${node} code=${states?.[index]} brief=${kept?.get(node)} generation=${execution.generation} topology=${topology} states=${states} ended=${ended} />`}
    </div>
  </div>`;
}

/** @param {string} id @param {URLSearchParams} query @param {string} tab */
function tabLink(id, query, tab) {
  const next = new URLSearchParams();
  if (tab !== "graph") next.set("tab", tab);
  const node = query.get("node");
  if (node) next.set("node", node);
  return href(to("executions", id), next);
}

/**
 * @param {{execution: import("../types").Execution, state: string, status: import("../live.js").LiveStatus, counts: Record<string, number>,
 *   ended: boolean, expected: import("../types").Expected | null, actions: any}} props
 */
function Head({ execution, state, status, counts, ended, expected, actions }) {
  const { workflow, version, id } = execution;
  const name = workflow ? html`<a href=${href(to("workflows", workflow))}><bdi>${workflow}</bdi></a>` : "Execution";
  const about = html`<span class="row wrap">${version && html`<span>${`version ${version}`}</span>`}<code title=${id}>${shortId(id)}</code><${CopyButton} text=${id} what="Id copied" /></span>`;
  return html`<${PageHeader} title=${name} about=${about} actions=${actions}>
    <div class="execution-line row wrap">
      <strong><${State} name=${state} /></strong>
      <${LiveBadge} status=${status} />
      <span class="execution-progress"><${ProgressBar} counts=${counts} text /></span>
      <span title="Since it started"><${Duration} from=${execution.started_at ?? execution.created_at} until=${ended ? (execution.finished_at ?? undefined) : undefined} /></span>
      <${Expected} expected=${expected} />
      <span class="muted">created <${Ago} at=${execution.created_at} /></span>
      ${execution.generation > 1 && html`<span class="muted" title="It was retried">generation ${execution.generation}</span>`}
      ${execution.trigger && html`<span>trigger <bdi>${execution.trigger}</bdi></span>`}
      ${execution.forked_from && html`<a href=${href(to("executions", execution.forked_from))}>forked from ${shortId(execution.forked_from)}</a>`}
      ${execution.batch && html`<a href=${href(to("batches", execution.batch))}>batch ${shortId(execution.batch)}</a>`}
      ${execution.trace_id && html`<span class="row muted" title=${execution.trace_id}>trace <code>${execution.trace_id.slice(0, 8)}</code><${CopyButton} text=${execution.trace_id} what="Trace id copied" /></span>`}
      ${!execution.live && !ended && html`<span class="label" title="The store of hot state is away: phases of nodes are missing">without live states</span>`}
      <${Labels} labels=${execution.labels} onPick=${(/** @type {string} */ label) => navigate("/executions", { label })} />
    </div>
    <div class="small" aria-live="polite"><${Counts} counts=${counts} /></div>
    ${execution.error && ended && html`<${ErrorLine} error=${execution.error} />`}
  </${PageHeader}>`;
}

/** The predicted end with its spread. @param {{expected: import("../types").Expected | null}} props */
function Expected({ expected }) {
  const now = useNow(1000, expected !== null);
  if (!expected) return null;
  const left = (Date.parse(expected.finish_at) - now) / 1000;
  const spread = `between ${formatClock(expected.low_at)} and ${formatClock(expected.high_at)}, by ${formatCount(expected.samples)} earlier executions`;
  const deciding = expected.deciding.length ? `; decided by ${expected.deciding.slice(0, 5).join(", ")}` : "";
  return html`<span class="expected" title=${spread + deciding}>${left > 0 ? `ends in about ${formatSeconds(left < 10 ? left : Math.round(left))}` : "longer than usual"}</span>`;
}

/** @param {{error: import("../types").WeftError}} props */
function ErrorLine({ error }) {
  return html`<div class="note note-danger error-line">
    <details><summary class="break"><strong>${error.code}</strong> <bdi>${visible(firstLine(error.message))}</bdi></summary><${Failure} error=${error} /></details>
    ${error.node && html`<button class="link" onClick=${() => setQuery({ node: error.node })}>show <bdi>${error.node}</bdi></button>`}
  </div>`;
}

/** Keep the last value while the next one is loaded. @template T @param {T | undefined} value @returns {T | null} */
function useKept(value) {
  const kept = useRef(/** @type {T | null} */ (null));
  if (value !== undefined) kept.current = value;
  return kept.current;
}

/** Call when the page is seen again. @param {() => void} seen */
function useSeen(seen) {
  const latest = useRef(seen);
  latest.current = seen;
  useEffect(() => {
    const changed = () => {
      if (!document.hidden) latest.current();
    };
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  }, []);
}
