// The form that starts an execution: the input by the version's schema, labels and priority.

import { startExecution } from "../api.js";
import { FORMS } from "../execution/copy.js";
import { Note, ProblemNote, asProblem } from "../ui/load.js";
import { Menu, copyText } from "../ui/parts.js";
import { html, useMemo, useRef, useState } from "../ui/preact.js";
import { navigate, to } from "../ui/router.js";
import { SchemaForm, filledWith, readForm } from "../ui/schema_form.js";
import { placeFindings, shapeOf } from "../ui/schema_shape.js";
import { readLabels, splitFindings } from "./start.js";

const PRIORITIES = ["high", "normal", "low"];

/** @param {{name: string, workflow: import("../types").Workflow}} props */
export function StartTab({ name, workflow }) {
  const schema = workflow.definition?.input_schema;
  const shape = useMemo(() => shapeOf(schema ?? {}), [schema]);
  const [filled, setFilled] = useState(() => filledWith(shape));
  const [labels, setLabels] = useState("");
  const [priority, setPriority] = useState("normal");
  const [findings, setFindings] = useState(/** @type {import("../ui/schema_shape.js").Finding[]} */ ([]));
  const [problem, setProblem] = useState(/** @type {import("../api.js").Problem | null} */ (null));
  const [busy, setBusy] = useState(false);
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const { input: ofInput, labels: ofLabels } = splitFindings(findings);
  const messages = placeFindings(shape, ofInput);
  const show = (/** @type {import("../ui/schema_shape.js").Finding[]} */ found) => {
    setFindings(found);
    setTimeout(() => /** @type {HTMLElement | null} */ (form.current?.querySelector('[aria-invalid="true"]'))?.focus());
  };
  /** Return what the form says; null: it shows what is wrong. */
  const readAll = () => {
    const input = readForm(shape, filled);
    const read = readLabels(labels);
    const wrong = [...input.problems.map((one) => ({ ...one, pointer: `/input${one.pointer}` })), ...read.problems];
    if (!wrong.length) return { input: input.value, version: workflow.version, labels: read.value, priority };
    show(wrong);
    return null;
  };
  const copy = (/** @type {typeof FORMS[0]} */ [, form, said]) => {
    const body = readAll();
    if (body) copyText(form({ workflow: name, ...body }), said);
  };
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem(null);
    const body = readAll();
    if (!body) return;
    setBusy(true);
    try {
      const started = await startExecution(name, body);
      navigate(to("executions", started.id));
    } catch (error) {
      const caught = asProblem(error);
      const { other } = splitFindings(caught.problems);
      // What stands at the fields is not said a second time, unless some of it has no field.
      if (!caught.problems.length || other.length) setProblem(caught);
      show(caught.problems);
      setBusy(false);
    }
  };
  return html`<form class="start" ref=${form} onSubmit=${submit} noValidate>
    <section class="card start-input">
      <h2>Input</h2>
      ${schema === undefined && html`<p class="muted">This version has no <code>input_schema</code>: any JSON object is its input.</p>`}
      <${SchemaForm} shape=${shape} filled=${filled} onChange=${setFilled} messages=${messages} label="Input" prefix="input" />
    </section>
    <section class="card start-more">
      <h2>Execution</h2>
      <div class="field"><label for="start-labels">Labels</label>
        <textarea id="start-labels" rows="2" spellcheck="false" placeholder="key=value, one on each line" value=${labels} aria-describedby="start-labels-said"
          aria-invalid=${String(ofLabels.length > 0)} onInput=${(/** @type {any} */ event) => setLabels(event.target.value)}></textarea>
        <div id="start-labels-said" class="field-said" aria-live="polite">${ofLabels.map((one) => html`<p class="break">${one.message}</p>`)}</div>
      </div>
      <div class="field"><label for="start-priority">Priority</label>
        <select id="start-priority" class="short" value=${priority} onChange=${(/** @type {any} */ event) => setPriority(event.target.value)}>
          ${PRIORITIES.map((one) => html`<option value=${one} selected=${one === priority}>${one}</option>`)}
        </select>
      </div>
      <div class="start-end stack">
        ${findings.length > 0 && !problem && html`<${Note} kind="warning">${findings.length === 1 ? "One field needs another value." : `${findings.length} problems are shown at their fields.`}</${Note}>`}
        <${ProblemNote} problem=${problem} />
        <div class="row"><button class="primary" type="submit" disabled=${busy}>${`Start version ${workflow.version}`}</button>
          <${Menu} label="Copy" title="Copy what starts it" items=${FORMS.map((one) => ({ name: one[0], act: () => copy(one) }))} /></div>
      </div>
    </section>
  </form>`;
}
