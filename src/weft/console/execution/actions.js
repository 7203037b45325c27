// What can be done with an execution: cancel, pause, resume, retry with its plan shown before, fork, copy.

import { cancelExecution, forkExecution, pauseExecution, planRetry, resumeExecution, retryExecution } from "../api.js";
import { Dialog, confirm, openDialog } from "../ui/dialog.js";
import { Loading, ProblemNote, asProblem } from "../ui/load.js";
import { Menu, copyText } from "../ui/parts.js";
import { html, useEffect, useState } from "../ui/preact.js";
import { navigate, to } from "../ui/router.js";
import { isTerminal } from "../ui/states.js";
import { formatCount } from "../ui/time.js";
import { say, sayProblem } from "../ui/toast.js";
import { FORMS } from "./copy.js";

/** @typedef {import("../types").Execution} Execution */

const MOST_NAMES = 200;

/**
 * @param {{execution: Execution, state: string, node: string | null, nodes: string[], changed: () => void}} props
 *   `state`: the live one; `node`: the chosen one; `changed`: read the execution again
 */
export function Actions({ execution, state, node, nodes, changed }) {
  const [busy, setBusy] = useState("");
  const act = async (/** @type {string} */ what, /** @type {() => Promise<unknown>} */ call, /** @type {string} */ done) => {
    setBusy(what);
    try {
      await call();
      say(done);
      changed();
    } catch (error) {
      sayProblem(error, `Not ${what}`);
    }
    setBusy("");
  };
  const id = execution.id;
  const ended = isTerminal(state);
  const cancel = async () => {
    const body = html`<p>Every node that is not settled is cancelled, and no attempt starts any more. What runs now is told to stop.</p>`;
    if (await confirm({ title: "Cancel this execution?", body, verb: "Cancel the execution", danger: true })) {
      await act("cancelled", () => cancelExecution(id), "Cancelled.");
    }
  };
  const retry = async () => {
    if (await openDialog((close) => html`<${RetryDialog} id=${id} node=${node} close=${close} />`)) changed();
  };
  const fork = async () => {
    const started = await openDialog((/** @type {(e?: Execution) => void} */ close) => html`<${ForkDialog} execution=${execution} node=${node} nodes=${nodes} close=${close} />`);
    if (started) navigate(to("executions", started.id));
  };
  return html`
    ${(state === "FAILED" || state === "CANCELLED") && html`<button class="primary" onClick=${retry}>Retry…</button>`}
    ${!ended && state !== "PAUSED" && html`<button disabled=${Boolean(busy)} onClick=${() => act("paused", () => pauseExecution(id), "Paused: no further attempt starts.")}>Pause</button>`}
    ${state === "PAUSED" && html`<button class="primary" disabled=${Boolean(busy)} onClick=${() => act("resumed", () => resumeExecution(id), "Resumed.")}>Resume</button>`}
    ${!ended && html`<button class="danger" disabled=${Boolean(busy)} onClick=${cancel}>Cancel…</button>`}
    ${ended && html`<button onClick=${fork}>Fork…</button>`}
    <${Menu} label="Copy" title="Copy what starts it again" items=${[
      ...(execution.workflow === null ? [] : FORMS.map(([name, form, said]) => ({ name, act: () => copyText(form(execution), said) }))),
      { name: "Id", act: () => copyText(id, "Id copied") },
      { name: "Link", act: () => copyText(location.href, "Link copied") },
    ]} />`;
}

/** @param {{id: string, node: string | null, close: (done?: boolean) => void}} props */
function RetryDialog({ id, node, close }) {
  const [withNode, setWithNode] = useState(false);
  const [plan, setPlan] = useState(/** @type {{generation: number, run: string[], reuse: string[]} | null} */ (null));
  const [problem, setProblem] = useState(/** @type {import("../api.js").Problem | null} */ (null));
  const [busy, setBusy] = useState(false);
  const nodes = withNode && node ? [node] : [];
  useEffect(() => {
    let gone = false;
    setPlan(null);
    planRetry(id, nodes).then(
      (made) => gone || (setPlan(made), setProblem(null)),
      (error) => gone || setProblem(asProblem(error)),
    );
    return () => {
      gone = true;
    };
  }, [withNode]);
  const retry = async () => {
    setBusy(true);
    try {
      await retryExecution(id, nodes);
      say("Retried: the next generation runs.");
      close(true);
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Retry this execution" wide onClose=${() => close()} footer=${html`
    <button onClick=${() => close()}>Keep as it is</button>
    <button class="primary" autofocus disabled=${!plan || busy} onClick=${retry}>${plan ? `Run ${formatCount(plan.run.length)} ${plan.run.length === 1 ? "node" : "nodes"}` : "Retry"}</button>`}>
    ${node && html`<label class="row"><input type="checkbox" checked=${withNode} onChange=${() => setWithNode(!withNode)} /> <span>Run <code><bdi>${node}</bdi></code> and all behind it again, also what completed</span></label>`}
    <${ProblemNote} problem=${problem} />
    ${!plan && !problem && html`<${Loading} />`}
    ${plan && html`<p>${`Generation ${plan.generation} opens. Attempt numbers go on; what is kept does not run again.`}</p>
      <div class="plan">
        <${Names} title="Runs again" names=${plan.run} />
        <${Names} title="Kept" names=${plan.reuse} />
      </div>`}
  </${Dialog}>`;
}

/** @param {{title: string, names: string[]}} props */
function Names({ title, names }) {
  return html`<section class="card">
    <h3>${title} <span class="muted number">${formatCount(names.length)}</span></h3>
    <ul class="names" tabindex="0" aria-label=${title}>${names.slice(0, MOST_NAMES).map((name) => html`<li><code class="break"><bdi>${name}</bdi></code></li>`)}</ul>
    ${names.length > MOST_NAMES && html`<p class="muted small">${`and ${formatCount(names.length - MOST_NAMES)} more`}</p>`}
  </section>`;
}

/** @param {{execution: Execution, node: string | null, nodes: string[], close: (started?: Execution) => void}} props */
function ForkDialog({ execution, node, nodes, close }) {
  const [from, setFrom] = useState(node ?? "");
  const [changes, setChanges] = useState(false);
  const [input, setInput] = useState(() => JSON.stringify(execution.input ?? {}, null, 2));
  const [version, setVersion] = useState("");
  const [problem, setProblem] = useState(/** @type {import("../api.js").Problem | null} */ (null));
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setWrong("");
    setProblem(null);
    const names = from.split(/[\s,]+/).filter(Boolean);
    const unknown = names.filter((name) => nodes.length && !nodes.includes(name));
    if (unknown.length) return setWrong(`This workflow has no node ${unknown.join(", ")}.`);
    /** @type {{from?: string[], input?: any, version?: any}} */
    const body = names.length ? { from: names } : {};
    if (version.trim()) body.version = /^\d+$/.test(version.trim()) ? Number(version) : version.trim();
    if (changes) {
      try {
        body.input = JSON.parse(input);
      } catch (error) {
        return setWrong(`The input is not JSON: ${error instanceof Error ? error.message : error}`);
      }
    }
    setBusy(true);
    try {
      const started = await forkExecution(execution.id, body);
      say("Forked: this is the new execution.");
      close(started);
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Fork this execution" wide onClose=${() => close()}>
    <form class="stack" id="fork" onSubmit=${submit}>
      <p class="muted">A new execution starts; this one stays as it is. What completed and is not in or behind the named nodes is kept, and does not run again.</p>
      <label class="stack"><span>Run from these nodes (none: all run)</span>
        <input list="fork-nodes" value=${from} autofocus autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setFrom(event.target.value)} />
      </label>
      <datalist id="fork-nodes">${nodes.slice(0, 1000).map((name) => html`<option value=${name}></option>`)}</datalist>
      ${execution.workflow && html`<label class="stack"><span>Version (none: ${execution.version})</span>
        <input value=${version} autocomplete="off" placeholder="a number or an alias" onInput=${(/** @type {any} */ event) => setVersion(event.target.value)} /></label>`}
      <label class="row"><input type="checkbox" checked=${changes} onChange=${() => setChanges(!changes)} /> With another input</label>
      ${changes && html`<textarea rows="10" aria-label="Input as JSON" spellcheck=${false} value=${input} onInput=${(/** @type {any} */ event) => setInput(event.target.value)}></textarea>`}
      ${wrong && html`<div class="note note-danger" role="alert">${wrong}</div>`}
      <${ProblemNote} problem=${problem} />
      <div class="row end"><button type="button" onClick=${() => close()}>Keep as it is</button><button class="primary" type="submit" disabled=${busy}>Fork</button></div>
    </form>
  </${Dialog}>`;
}
