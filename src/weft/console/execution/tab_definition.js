// The definition that the execution runs by.

import { getWorkflow } from "../api.js";
import { JsonTree } from "../ui/json_tree.js";
import { Loading, Note, ProblemNote, useLoad } from "../ui/load.js";
import { html } from "../ui/preact.js";
import { href, to } from "../ui/router.js";

/** @param {{execution: import("../types").Execution, topology: import("../types").Topology | undefined, node: string | null}} props */
export function DefinitionTab({ execution, topology, node }) {
  const { workflow, version } = execution;
  const { data, problem, reload } = useLoad(async (signal) => (workflow && version ? getWorkflow(workflow, version, signal) : null), [workflow, version]);
  const facts = html`<dl class="facts">
    <div><dt>Workflow</dt><dd>${workflow ? html`<a href=${href(to("workflows", workflow), { version })}><bdi>${workflow}</bdi>, version ${version}</a>` : "not stored by name"}</dd></div>
    <div><dt>Digest</dt><dd><code class="break">${execution.digest}</code></dd></div>
    <div><dt>Priority</dt><dd>${execution.priority}</dd></div>
    ${topology && html`<div><dt>Nodes</dt><dd class="number">${topology.nodes.length}, ${topology.from.length} dependencies</dd></div>`}
  </dl>`;
  if (problem && !problem.isMissing) return html`<${ProblemNote} problem=${problem} retry=${reload} />`;
  if (data === undefined && !problem) return html`<${Loading} />`;
  const definition = data?.definition;
  const part = node && definition?.nodes?.find((/** @type {any} */ one) => one.id === node);
  return html`<div class="data">
    <section class="card">${facts}</section>
    ${!definition && html`<${Note}>${workflow ? "This version is not stored any more." : "It was started with a definition of its own, which the server shows as a graph alone."}</${Note}>`}
    ${part && html`<section class="card"><h2>Node <bdi>${node}</bdi></h2><${JsonTree} key=${node} value=${part} label="Definition of the node" /></section>`}
    ${definition && html`<section class="card"><h2>Definition</h2><${JsonTree} value=${definition} label="Definition" /></section>`}
  </div>`;
}
