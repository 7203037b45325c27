// Beside the tabs: one node. Why it does not run, its attempts, its error, what it printed, its config and output.

import { explainNode, getNode } from "../api.js";
import { Icon } from "../ui/icons.js";
import { JsonTree, visible } from "../ui/json_tree.js";
import { Loading, Note, ProblemNote, useLoad } from "../ui/load.js";
import { CopyButton, copyText } from "../ui/parts.js";
import { html, useEffect, useMemo, useRef, useState } from "../ui/preact.js";
import { setQuery } from "../ui/router.js";
import { State, isSettled } from "../ui/states.js";
import { Ago, Countdown, Duration, formatBytes, formatTime } from "../ui/time.js";
import { Answered, OpenQuestion } from "../waits/answer_form.js";
import { answerOf } from "../waits/question.js";
import { LogView } from "./log_view.js";

const ON_DEMAND_BYTES = 1_000_000;

/**
 * @param {{
 *   id: string, node: string, code: number | undefined, brief: import("../types").Node | undefined, generation: number,
 *   topology: import("../types").Topology, states: Uint8Array | null, ended: boolean,
 * }} props `code`: the live state
 */
export function NodeSheet({ id, node, code, brief, generation, topology, states, ended }) {
  const [wanted, setWanted] = useState("");
  const large = (brief?.output_bytes ?? 0) > ON_DEMAND_BYTES && wanted !== node;
  // The state is read again when the live one changes, and at times where what is shown may change without it.
  const { data, problem, reload } = useLoad(
    async (signal) => (large ? null : getNode(id, node, signal)),
    [id, node, code, generation, large],
    { every: ended || (code !== undefined && [3, 4, 5, 6].includes(code)) ? 0 : 3000 },
  );
  const kept = useKept(data, node);
  const shown = kept ?? brief;
  const answer = answerOf(kept);
  const title = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => title.current?.focus({ preventScroll: true }), [node]);
  return html`<aside class="sheet" aria-label=${`Node ${node}`}>
    <header class="sheet-head">
      <div class="row">
        <h2 class="grow break" tabindex="-1" ref=${title}><bdi>${node}</bdi></h2>
        <${CopyButton} text=${node} what="Name copied" />
        <button class="plain icon-button" aria-label="Close (Esc)" title="Close (Esc)" onClick=${() => setQuery({ node: null })}><${Icon} name="close" /></button>
      </div>
      <div class="row wrap">
        ${code !== undefined ? html`<${State} code=${code} />` : shown && html`<${State} name=${shown.state} />`}
        ${shown && html`<span class="muted">${shown.handler}</span>`}
        ${shown && shown.started_at && html`<${Duration} from=${shown.started_at} until=${shown.finished_at} />`}
        ${shown?.cached && html`<span class="label">from the cache</span>`}
        ${shown?.reused && html`<span class="label">kept by the fork</span>`}
      </div>
      ${shown?.progress && !isSettled(shown.state) && html`<${NodeProgress} progress=${shown.progress} />`}
    </header>
    <div class="sheet-body">
      ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
      ${large && html`<${Note}>The output has ${formatBytes(brief?.output_bytes)}. <button class="link" onClick=${() => setWanted(node)}>Load it with the details</button></${Note}>`}
      ${!shown && !problem && html`<${Loading} />`}
      ${shown && html`<${Why} id=${id} node=${shown} code=${code} />`}
      ${code === 8 && shown?.handler === "wait" && html`<${OpenQuestion} key=${node} id=${id} node=${node} />`}
      ${answer && html`<${Answered} answer=${answer} />`}
      ${shown?.error && html`<${Failure} error=${shown.error} />`}
      ${kept && html`<${Attempts} attempts=${kept.attempts} allowed=${kept.max_retries + 1} />`}
      <${LogSection} key=${`logs-${node}`} id=${id} node=${node} settled=${ended || isSettled(shown?.state ?? "")} />
      ${kept && html`<${Section} name="Output" open about=${kept.output_bytes !== null ? formatBytes(kept.output_bytes) : ""}>
        ${kept.output === undefined || (kept.output === null && kept.output_bytes === null) ? html`<p class="muted">none</p>` : html`<${JsonTree} key=${node} value=${kept.output} label="Output" />`}
      </${Section}>
      <${Section} name="Config" about="as the handler receives it">
        ${kept.config === null || kept.config === undefined ? html`<p class="muted">It is filled in when the node runs.</p>` : html`<${JsonTree} key=${node} value=${kept.config} label="Config" />`}
      </${Section}>`}
      <${Neighbours} node=${node} topology=${topology} states=${states} />
    </div>
  </aside>`;
}

/** Keep the last detail of a node while the next one is loaded. @param {import("../types").NodeDetail | null | undefined} data @param {string} node */
function useKept(data, node) {
  const kept = useRef(/** @type {import("../types").NodeDetail | null} */ (null));
  if (data) kept.current = data;
  if (kept.current && kept.current.id !== node) kept.current = null;
  return kept.current;
}

/** @param {{name: string, about?: any, open?: boolean, children?: any, onToggle?: (open: boolean) => void}} props */
function Section({ name, about, open = false, children, onToggle }) {
  return html`<details class="section" open=${open} onToggle=${(/** @type {any} */ event) => onToggle?.(event.target.open)}>
    <summary><h3>${name}</h3>${about && html`<span class="muted small ellipsis">${about}</span>`}</summary>
    <div class="section-body">${children}</div>
  </details>`;
}

/** @param {{progress: import("../types").Progress}} props */
function NodeProgress({ progress }) {
  const { done, total, message } = progress;
  const said = total ? `${done} of ${total}` : `${done}`;
  return html`<div class="row"><progress class="grow" max=${total ?? 1} value=${total ? done : null} aria-label=${said}></progress><span class="number small">${said}</span>
    ${message && html`<bdi class="muted small ellipsis">${visible(message)}</bdi>`}</div>`;
}

/**
 * Why the node does not run, as the server explains it.
 * @param {{id: string, node: import("../types").Node, code: number | undefined}} props
 */
function Why({ id, node, code }) {
  const settled = isSettled(node.state);
  const { data } = useLoad(async (signal) => (settled ? null : explainNode(id, node.id, signal)), [id, node.id, settled, code], { every: settled ? 0 : 2000 });
  const kept = useRef(/** @type {import("../types").Explanation | null} */ (null));
  if (data !== undefined) kept.current = data;
  if (settled) {
    if (!node.reason) return null;
    return html`<div class="why"><strong>${REASONS[node.reason] ?? node.reason}</strong>${node.cause && html` <${NodeLink} name=${node.cause} />`}</div>`;
  }
  return html`<div class="why" aria-live="polite">
    <h3>${({ RUNNING: "It runs", WAITING: "What it waits for" })[node.state] ?? "Why it does not run"}</h3>
    ${!kept.current && html`<${Loading} />`}
    <ul class="stack">
      ${kept.current?.reasons.map((reason) => html`<li>
        <bdi class="break">${visible(reason.message)}</bdi>
        ${reason.until && html`<div class="why-until" role="timer" aria-live="off">${UNTIL[reason.code] ?? "until then"} <strong><${Countdown} until=${reason.until} /></strong> <span class="muted small">${formatTime(reason.until)}</span></div>`}
        ${reason.nodes && html`<div class="row wrap small">${reason.nodes.slice(0, 12).map((name) => html`<${NodeLink} name=${name} />`)}${reason.nodes.length > 12 && html`<span class="muted">${`and ${reason.nodes.length - 12} more`}</span>`}</div>`}
        <code class="muted small">${reason.code}</code>
      </li>`)}
    </ul>
  </div>`;
}

const UNTIL = /** @type {Record<string, string>} */ ({
  retry_scheduled: "next attempt in", rate_limited: "its turn is in", running: "wakes in", waiting_for_time: "goes on in",
  waiting_for_look: "next look in", waiting_for_signal: "expires in", waiting_for_event: "expires in",
});
const REASONS = /** @type {Record<string, string>} */ ({
  upstream_failed: "Skipped, because this node failed:",
  upstream_skipped: "Skipped, because a parent was skipped:",
  not_triggered: "Skipped: no parent failed.",
  condition: "Skipped: its condition does not hold.",
  fail_fast: "Cancelled, because this node failed and the workflow fails fast:",
  cancelled: "The execution was cancelled.",
  deadline: "The execution did not finish in time.",
});

/** @param {{name: string}} props */
export function NodeLink({ name }) {
  return html`<button class="link" onClick=${() => setQuery({ node: name })}><bdi class="break">${name}</bdi></button>`;
}

/** @param {{error: import("../types").WeftError}} props */
export function Failure({ error }) {
  const { traceback, ...details } = error.details ?? {};
  const more = Object.keys(details).length > 0;
  return html`<section class="failure" aria-label="Error">
    <div class="row wrap"><strong class="state-failed">${error.code}</strong><span class="muted small">${error.retryable ? "retryable" : "not retryable"}</span>
      ${error.node && html`<${NodeLink} name=${error.node} />`}</div>
    <pre class="failure-message">${visible(error.message)}</pre>
    ${typeof traceback === "string" && html`<details open><summary class="small">Traceback</summary><${CopyTrace} text=${traceback} /><pre class="traceback" tabindex="0">${visible(traceback)}</pre></details>`}
    ${more && html`<${JsonTree} value=${details} label="Details of the error" />`}
  </section>`;
}

/** @param {{text: string}} props */
function CopyTrace({ text }) {
  return html`<button class="link small" onClick=${() => copyText(text, "Traceback copied")}>copy the traceback</button>`;
}

/** @param {{attempts: import("../types").Attempt[], allowed: number}} props */
function Attempts({ attempts, allowed }) {
  if (!attempts.length) return null;
  const last = attempts[attempts.length - 1];
  return html`<${Section} name="Attempts" open=${attempts.length > 1} about=${attempts.some((one) => one.outcome === "polled") ? attempts.length : `${attempts.length}, at most ${allowed} a generation`}>
    <div class="scroll-x" tabindex="0" role="group" aria-label="Table of attempts"><table class="attempts">
      <thead><tr><th>No.</th><th>Outcome</th><th>Waited</th><th>Took</th><th>Started</th><th>Worker</th></tr></thead>
      <tbody>
        ${[...attempts].reverse().map((one) => html`<tr>
          <td class="number">${one.number}${one.generation > 1 && html`<span class="muted small"> ↻${one.generation}</span>`}</td>
          <td>${one.outcome ? html`<${State} name=${OUTCOMES[one.outcome] ?? one.outcome.toUpperCase()} />` : one.started_at ? html`<${State} name="RUNNING" />` : html`<${State} name="QUEUED" />`}
            ${one.error && one !== last && html`<details class="small"><summary>${one.error.code}</summary><pre class="break">${visible(one.error.message)}</pre></details>`}</td>
          <td><${Duration} from=${one.queued_at} until=${one.started_at} /></td>
          <td><${Duration} from=${one.started_at} until=${one.finished_at} /></td>
          <td><${Ago} at=${one.started_at} /></td>
          <td class="mono small"><bdi>${one.worker ?? "–"}</bdi></td>
        </tr>`)}
      </tbody>
    </table></div>
  </${Section}>`;
}

const OUTCOMES = /** @type {Record<string, string>} */ ({ completed: "COMPLETED", failed: "FAILED", cancelled: "CANCELLED", lost: "LOST", polled: "POLLED" });

/** @param {{id: string, node: string, settled: boolean}} props */
function LogSection({ id, node, settled }) {
  const [open, setOpen] = useState(true);
  return html`<${Section} name="Logs" open about=${settled ? "" : "followed"} onToggle=${setOpen}>
    ${open && html`<div class="sheet-logs"><${LogView} id=${id} node=${node} compact /></div>`}
  </${Section}>`;
}

/** @param {{node: string, topology: import("../types").Topology, states: Uint8Array | null}} props */
function Neighbours({ node, topology, states }) {
  const { before, after } = useMemo(() => neighboursOf(topology, node), [topology, node]);
  const list = (/** @type {number[]} */ all) => html`<ul class="names">
    ${all.slice(0, 50).map((i) => html`<li class="row">${states && html`<${State} code=${states[i]} brief />`}<${NodeLink} name=${topology.nodes[i]} /></li>`)}
    ${all.length > 50 && html`<li class="muted small">${`and ${all.length - 50} more`}</li>`}
  </ul>`;
  return html`<${Section} name="Neighbours" open=${before.length + after.length <= 20} about=${`${before.length} before, ${after.length} after`}>
    <div class="plan">
      <div><h3>Runs after</h3>${before.length ? list(before) : html`<p class="muted">nothing</p>`}</div>
      <div><h3>Runs before</h3>${after.length ? list(after) : html`<p class="muted">nothing</p>`}</div>
    </div>
  </${Section}>`;
}

/**
 * Return the indexes of the nodes on both sides of a node.
 * @param {import("../types").Topology} topology @param {string} node
 */
export function neighboursOf(topology, node) {
  const index = topology.nodes.indexOf(node);
  const before = [];
  const after = [];
  for (let i = 0; i < topology.from.length; i++) {
    if (topology.to[i] === index) before.push(topology.from[i]);
    if (topology.from[i] === index) after.push(topology.to[i]);
  }
  return { before, after };
}

