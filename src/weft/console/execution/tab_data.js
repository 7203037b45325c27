// What the execution was given, and what came of it.

import { JsonTree } from "../ui/json_tree.js";
import { html } from "../ui/preact.js";
import { isTerminal } from "../ui/states.js";
import { Failure } from "./node_sheet.js";

/** @param {{execution: import("../types").Execution}} props */
export function DataTab({ execution }) {
  return html`<div class="data">
    ${execution.error && html`<${Failure} error=${execution.error} />`}
    <section class="card"><h2>Input</h2><${JsonTree} value=${execution.input ?? {}} label="Input" /></section>
    <section class="card"><h2>Output</h2>
      ${isTerminal(execution.state) ? html`<${JsonTree} value=${execution.output ?? null} label="Output" />` : html`<p class="muted">It is there when the execution has completed.</p>`}
    </section>
  </div>`;
}
