// The form that stores a trigger, or changes one; or its JSON.

import { listWorkflows, putTrigger } from "../api.js";
import { Loading, ProblemNote, useLoad } from "../ui/load.js";
import { html, useMemo, useState } from "../ui/preact.js";
import { SchemaForm, filledWith, useForm } from "../ui/schema_form.js";
import { draftOf, shapeOf } from "../ui/schema_shape.js";
import { say } from "../ui/toast.js";
import { KINDS, kindOf, schemaOf, sentOf, writtenOf } from "./text.js";

/** @typedef {import("../types").Trigger} Trigger */

/** @param {{trigger?: Trigger, onStored: (trigger: Trigger) => void, onClose: () => void}} props */
export function TriggerForm({ trigger, onStored, onClose }) {
  const { data, problem } = useLoad((signal) => listWorkflows({ limit: 500 }, signal), []);
  if (!data) return problem ? html`<${ProblemNote} problem=${problem} />` : html`<${Loading} />`;
  // Of very many workflows the name is typed.
  const names = data.next_cursor ? [] : data.items.map((one) => one.name);
  const workflows = trigger && names.length && !names.includes(trigger.workflow) ? [trigger.workflow, ...names] : names;
  return html`<${Form} trigger=${trigger} workflows=${workflows} onStored=${onStored} onClose=${onClose} />`;
}

/** @param {{trigger?: Trigger, workflows: string[], onStored: (trigger: Trigger) => void, onClose: () => void}} props */
function Form({ trigger, workflows, onStored, onClose }) {
  const [kind, setKind] = useState(trigger ? kindOf(trigger) : KINDS[0]);
  const names = workflows.join("\n");
  const shape = useMemo(() => shapeOf(schemaOf(kind, { workflows, named: !trigger })), [kind, names]);
  const { filled, setFilled, messages, problem, busy, form, send } = useForm(shape, () => filledWith(shape, trigger && writtenOf(trigger)));
  const turnInto = (/** @type {import("./text.js").Kind} */ next) => {
    // What both kinds have stays as it was typed.
    const blank = draftOf(shapeOf(schemaOf(next, { workflows, named: !trigger })));
    const kept = Object.entries(filled.draft.fields).filter(([name]) => name in blank.fields);
    setKind(next);
    setFilled({ draft: { ...blank, fields: { ...blank.fields, ...Object.fromEntries(kept) } }, json: null });
  };
  const store = async (/** @type {any} */ value) => {
    const stored = await putTrigger(trigger?.name ?? String(value.name), sentOf(value));
    say(html`The trigger <bdi>${stored.name}</bdi> is stored.`);
    onStored(stored);
  };
  return html`<form class="stack trigger-form card" ref=${form} onSubmit=${(/** @type {Event} */ event) => send(event, store)} noValidate aria-label=${trigger ? `Change ${trigger.name}` : "New trigger"}>
    <div class="row wrap chips" role="group" aria-label="What starts it">
      ${KINDS.map((one) => html`<button type="button" class="chip" aria-pressed=${String(one === kind)} onClick=${() => one !== kind && turnInto(one)}>${one}</button>`)}
    </div>
    <${SchemaForm} shape=${shape} filled=${filled} onChange=${setFilled} messages=${messages} label="Trigger" prefix="trigger" />
    <${ProblemNote} problem=${problem} />
    <div class="row"><button class="primary" type="submit" disabled=${busy}>Store</button><button type="button" onClick=${onClose}>${trigger ? "Keep as it is" : "Close"}</button></div>
  </form>`;
}
