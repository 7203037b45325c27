// One workflow: its graph, the form that starts it, its versions and their difference, and how executions went.

import { deleteWorkflow, getWorkflow, getWorkflowTopology } from "../api.js";
import { Mounted } from "../execution/mounted.js";
import { confirm } from "../ui/dialog.js";
import { useKeys } from "../ui/keys.js";
import { Loading, ProblemNote, useLoad } from "../ui/load.js";
import { Menu, PageHeader, Tabs } from "../ui/parts.js";
import { html } from "../ui/preact.js";
import { href, navigate, setQuery, to } from "../ui/router.js";
import { Ago, formatCount } from "../ui/time.js";
import { say, sayProblem } from "../ui/toast.js";
import { ExecutionsTab } from "../workflow/tab_executions.js";
import { StartTab } from "../workflow/tab_start.js";
import { VersionsTab } from "../workflow/tab_versions.js";

export const title = (/** @type {Record<string, string>} */ { name }) => name;

const TABS = /** @type {[string, string][]} */ ([["graph", "Graph"], ["start", "Start"], ["executions", "Executions"], ["versions", "Versions"]]);

/** @param {{params: Record<string, string>, query: URLSearchParams}} props */
export function Page({ params, query }) {
  const { name } = params;
  const version = query.get("version");
  const tab = TABS.some(([id]) => id === query.get("tab")) ? /** @type {string} */ (query.get("tab")) : "graph";
  const { data: workflow, problem, reload } = useLoad((signal) => getWorkflow(name, version ?? undefined, signal), [name, version]);
  useKeys("Workflow", { s: ["Start it", () => setQuery({ tab: "start" })] });
  if (!workflow) return html`<div class="page">${problem ? html`<${ProblemNote} problem=${problem} retry=${reload} />` : html`<${Loading} />`}</div>`;
  const tabs = TABS.map(([id, text]) => ({ id, name: text, href: href(to("workflows", name), { version, tab: id === "graph" ? null : id }) }));
  const about = html`<span>version ${workflow.version}, stored <${Ago} at=${workflow.created_at} /></span> <${Aliases} workflow=${workflow} />`;
  const actions = html`
    ${version && html`<a class="button" href=${href(to("workflows", name), { tab: query.get("tab") })}>Latest version</a>`}
    <${Menu} label="More" title="More for this workflow" items=${[
      { name: "Its executions", act: () => navigate("/executions", { workflow: name }) },
      { name: "Delete…", danger: true, act: () => remove(name) },
    ]} />
    ${tab !== "start" && html`<a class="button" href=${href(to("workflows", name), { version, tab: "start" })}>Start…</a>`}`;
  return html`<div class=${`page workflow${tab === "graph" ? " page-full" : ""}`}>
    <${PageHeader} title=${html`<bdi>${name}</bdi>`} about=${about} actions=${actions} />
    <${Tabs} label="Parts of the workflow" current=${tab} tabs=${tabs} />
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${tab === "graph" && html`<${GraphTab} key=${workflow.digest} name=${name} workflow=${workflow} />`}
    ${tab === "start" && html`<${StartTab} key=${workflow.digest} name=${name} workflow=${workflow} />`}
    ${tab === "executions" && html`<${ExecutionsTab} name=${name} version=${version} />`}
    ${tab === "versions" && html`<${VersionsTab} name=${name} workflow=${workflow} query=${query} />`}
  </div>`;
}

/** @param {{workflow: import("../types").Workflow}} props */
function Aliases({ workflow }) {
  const all = Object.entries(workflow.aliases).filter(([, version]) => version === workflow.version);
  return all.map(([alias]) => html`<span class="label" title=${`The alias ${alias} is this version`}><bdi>${alias}</bdi></span> `);
}

/** @param {{name: string, workflow: import("../types").Workflow}} props */
function GraphTab({ name, workflow }) {
  const { data: topology, problem, reload } = useLoad((signal) => getWorkflowTopology(name, workflow.version, signal), [name, workflow.version]);
  if (!topology) return problem ? html`<${ProblemNote} problem=${problem} retry=${reload} />` : html`<${Loading} />`;
  const load = async () => {
    const path = "../graph/view.js";
    const { mountGraph } = await import(path);
    return (/** @type {HTMLElement} */ element) => mountGraph(element, { topology, hasStates: false });
  };
  const nodes = workflow.definition?.nodes?.length ?? topology.nodes.length;
  return html`<p class="muted small">${`${formatCount(nodes)} ${nodes === 1 ? "node" : "nodes"}, ${formatCount(topology.from.length)} ${topology.from.length === 1 ? "dependency" : "dependencies"}`}</p>
    <${Mounted} load=${load} inputs=${[topology]} name="The graph" className="graph-box workflow-graph" />`;
}

/** @param {string} name */
async function remove(name) {
  const body = html`<p>No new execution starts by this name any more. Executions that run go on, and the history stays.</p>`;
  if (!(await confirm({ title: `Delete ${name}?`, body, verb: "Delete the workflow", danger: true }))) return;
  try {
    await deleteWorkflow(name);
    say("The workflow is deleted.");
    navigate("/workflows");
  } catch (error) {
    sayProblem(error, "Not deleted");
  }
}
