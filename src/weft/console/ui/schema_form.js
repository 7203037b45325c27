// A form for a JSON Schema: ui/schema_shape.js says what it has, this draws it, wherever people are asked for JSON.

import { JsonTree } from "./json_tree.js";
import { Note, asProblem } from "./load.js";
import { html, useRef, useState } from "./preact.js";
import { draftOf, escaped, exactDraft, placeFindings, readDraft } from "./schema_shape.js";

/** @typedef {import("./schema_shape.js").Shape} Shape */
/** @typedef {{shape: Shape, draft: any, onChange: (draft: any) => void, messages: Map<string, string[]>, pointer: string, name: string, required: boolean, prefix: string}} FieldProps */

/** What a form holds: its draft, or JSON text where the user prefers that. @typedef {{draft: any, json: string | null}} Filled */

/**
 * Return a form that is not filled in, but for the defaults of its schema, or filled with a value.
 * @param {Shape} shape @param {any} [value] @param {string} [blank] what is in a field of JSON that has no value yet
 * @returns {Filled}
 */
export function filledWith(shape, value, blank = "{}") {
  if (shape.kind === "json") return { draft: draftOf(shape), json: JSON.stringify(value ?? shape.preset, null, 2) ?? blank };
  if (value === undefined) return { draft: draftOf(shape), json: null };
  const draft = exactDraft(shape, value);
  return draft ? { draft, json: null } : { draft: draftOf(shape), json: JSON.stringify(value, null, 2) };
}

/** Return the value of a form, and what is wrong in it. @param {Shape} shape @param {Filled} filled */
export function readForm(shape, { draft, json }) {
  if (json === null) return readDraft(shape, draft, "", true);
  try {
    return { value: JSON.parse(json), problems: [] };
  } catch (error) {
    return { value: undefined, problems: [{ pointer: "", message: `This is not JSON: ${/** @type {Error} */ (error).message}` }] };
  }
}

/**
 * What a form holds, what is wrong in it, and how it is sent: what the server refuses stands at its fields.
 * @param {Shape} shape @param {() => Filled} first @param {string} [at] where the request has what the form says
 */
export function useForm(shape, first, at = "") {
  const [filled, setFilled] = useState(first);
  const [findings, setFindings] = useState(/** @type {import("./schema_shape.js").Finding[]} */ ([]));
  const [problem, setProblem] = useState(/** @type {import("../api.js").Problem | null} */ (null));
  const [busy, setBusy] = useState(false);
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const show = (/** @type {typeof findings} */ found) => {
    setFindings(found);
    setTimeout(() => /** @type {HTMLElement | null} */ (form.current?.querySelector('[aria-invalid="true"]'))?.focus());
  };
  /** @param {Event} event @param {(value: any) => Promise<void>} call */
  const send = async (event, call) => {
    event.preventDefault();
    setProblem(null);
    const { value, problems } = readForm(shape, filled);
    show(problems);
    if (problems.length) return;
    setBusy(true);
    try {
      await call(value);
    } catch (error) {
      const caught = asProblem(error);
      const own = caught.problems.filter((one) => one.pointer.startsWith(at)).map((one) => ({ ...one, pointer: one.pointer.slice(at.length) }));
      // What stands at the fields is not said a second time, unless some of it has no field.
      if (!own.length || own.length < caught.problems.length) setProblem(caught);
      show(own);
    }
    setBusy(false);
  };
  return { filled, setFilled, messages: placeFindings(shape, findings), problem, busy, form, send };
}

/**
 * The fields of a form, or one field of JSON text.
 * @param {{shape: Shape, filled: Filled, onChange: (filled: Filled) => void, messages: Map<string, string[]>, label: string, prefix?: string}} props
 *   `messages`: what is wrong, by pointers (`placeFindings`); `prefix`: of the ids of the controls
 */
export function SchemaForm({ shape, filled, onChange, messages, label, prefix = "field" }) {
  const [refused, setRefused] = useState("");
  const { draft, json } = filled;
  const toJson = () => {
    const { value } = readDraft(shape, draft, "", true);
    setRefused("");
    onChange({ draft, json: JSON.stringify(value, null, 2) });
  };
  const toFields = () => {
    const { value, problems } = readForm(shape, filled);
    const next = problems.length ? null : exactDraft(shape, value);
    setRefused(problems.length ? problems[0].message : next ? "" : "The fields cannot show this exactly; it stays JSON.");
    if (next) onChange({ draft: next, json: null });
  };
  const id = `${prefix}-json`;
  return html`<div class="form" role="group" aria-label=${label}>
    ${json === null
      ? shape.kind === "object"
        ? shape.fields.map((field) => html`<${SchemaField} key=${field.name} ...${fieldProps(shape, field, filled, onChange, messages, prefix)} />`)
        : html`<${SchemaField} shape=${shape} name=${label} required draft=${draft} onChange=${(/** @type {any} */ next) => onChange({ draft: next, json: null })} messages=${messages} pointer="" prefix=${prefix} />`
      : html`<div class="field">
          <label for=${id}>${label} as JSON</label>
          <textarea id=${id} rows="10" spellcheck="false" value=${json} aria-describedby=${`${id}-said`} aria-invalid=${String(messages.size > 0)}
            onInput=${(/** @type {any} */ event) => onChange({ draft, json: event.target.value })}></textarea>
          <${Said} id=${`${id}-said`} messages=${[...messages].flatMap(([pointer, said]) => said.map((one) => (pointer ? `${pointer}: ${one}` : one)))} />
        </div>`}
    ${json === null && shape.kind === "object" && messages.get("") && html`<${Said} id=${`${prefix}-said`} messages=${messages.get("") ?? []} />`}
    ${refused && html`<${Note} kind="warning">${refused}</${Note}>`}
    ${shape.kind !== "json" && html`<div><button type="button" class="link" onClick=${json === null ? toJson : toFields}>${json === null ? "Write JSON instead" : "Back to the fields"}</button></div>`}
  </div>`;
}

/**
 * @param {Shape} shape @param {import("./schema_shape.js").Field} field @param {Filled} filled
 * @param {(filled: Filled) => void} onChange @param {Map<string, string[]>} messages @param {string} prefix
 */
function fieldProps(shape, field, filled, onChange, messages, prefix) {
  return { ...inner(field, filled.draft, (draft) => onChange({ draft, json: null }), ""), messages, prefix };
}

/** @param {import("./schema_shape.js").Field} field @param {any} draft of the object around it @param {(draft: any) => void} onChange @param {string} pointer */
function inner({ name, shape, required }, draft, onChange, pointer) {
  const change = (/** @type {any} */ next) => onChange({ ...draft, fields: { ...draft.fields, [name]: next } });
  return { name, shape, required, draft: draft.fields[name], onChange: change, pointer: `${pointer}/${escaped(name)}` };
}

/** @param {FieldProps} props */
function SchemaField(props) {
  const { shape, name, pointer, messages, required, prefix, draft, onChange } = props;
  const said = messages.get(pointer) ?? [];
  // Names of fields may have spaces, which would end the id in aria-describedby.
  const id = `${prefix}${encodeURIComponent(pointer)}`;
  const title = html`<bdi>${shape.title || name}</bdi>${shape.title && shape.title !== name ? html` <code class="muted">${name}</code>` : null}${required ? html` <span class="muted small">required</span>` : null}`;
  const about = shape.about ? html`<p class="field-about" id=${`${id}-about`}>${shape.about}</p>` : null;
  const below = html`<${Said} id=${`${id}-said`} messages=${said} />`;
  if (shape.kind === "object") {
    return html`<fieldset class="field field-object"><legend>${title}</legend>${about}
      ${shape.fields.map((field) => html`<${SchemaField} key=${field.name} ...${inner(field, draft, onChange, pointer)} messages=${messages} prefix=${prefix} />`)}
      ${Object.keys(draft.rest).length > 0 && html`<${JsonTree} value=${draft.rest} label="More of it" />`}
      ${below}
    </fieldset>`;
  }
  if (shape.kind === "choices") return html`<fieldset class="field"><legend>${title}</legend>${about}<${Choices} ...${props} />${below}</fieldset>`;
  const rules = { id, "aria-describedby": `${shape.about ? `${id}-about ` : ""}${id}-said`, "aria-invalid": String(said.length > 0) };
  return html`<div class="field"><label for=${id}>${title}</label>${about}<${Control} ...${props} rules=${rules} />${below}</div>`;
}

/** @param {{id: string, messages: string[]}} props */
function Said({ id, messages }) {
  return html`<div id=${id} class="field-said" aria-live="polite">${messages.map((one) => html`<p class="break">${one}</p>`)}</div>`;
}

/** @param {FieldProps} props */
function Choices({ shape, draft, onChange }) {
  const toggle = (/** @type {number} */ i) => onChange(draft.includes(i) ? draft.filter((/** @type {number} */ one) => one !== i) : [...draft, i]);
  return html`<div class="row wrap choices">${shape.choices.map((choice, i) => html`<label class="row">
    <input type="checkbox" checked=${draft.includes(i)} onChange=${() => toggle(i)} /> <bdi>${choice.name}</bdi></label>`)}</div>`;
}

const TYPES = /** @type {Record<string, string>} */ ({ date: "date", datetime: "datetime-local" });
const FORMATS = /** @type {Record<string, string>} */ ({ email: "email", uri: "url" });

/** @param {FieldProps & {rules: Record<string, string>}} props */
function Control({ shape, draft, onChange, required, rules }) {
  const { kind, example } = shape;
  const onInput = (/** @type {any} */ event) => onChange(event.target.value);
  if (kind === "boolean" || kind === "choice") {
    const options = kind === "boolean" ? [{ value: "true", name: "yes" }, { value: "false", name: "no" }] : shape.choices.map(({ name }, i) => ({ value: String(i), name }));
    // Without a choice there is no value: an optional one can be taken back.
    const none = required && draft !== "" ? null : html`<option value="" selected=${draft === ""}>${required ? "choose…" : "not given"}</option>`;
    return html`<select class="short" ...${rules} value=${draft} onChange=${onInput}>${none}
      ${options.map(({ value, name }) => html`<option value=${value} selected=${value === draft}>${name}</option>`)}</select>`;
  }
  if (kind === "longtext" || kind === "lines" || kind === "json") {
    const rows = Math.min(12, Math.max(3, String(draft).split("\n").length));
    const hint = kind === "lines" ? "one on each line" : kind === "json" ? "JSON, such as {\"key\": 1}, [1, 2] or \"text\"" : example;
    return html`<textarea class=${kind === "longtext" ? "prose" : ""} ...${rules} rows=${rows} spellcheck=${String(kind === "longtext")} placeholder=${hint} value=${draft} onInput=${onInput}></textarea>`;
  }
  const isNumber = kind === "number" || kind === "integer";
  const hint = example === undefined || typeof example === "object" ? rangeOf(shape.schema) : String(example);
  return html`<input ...${rules} type=${TYPES[kind] ?? "text"} step=${kind === "datetime" ? 1 : null} class=${isNumber || kind in TYPES ? "short" : ""}
    inputmode=${isNumber ? (kind === "integer" ? "numeric" : "decimal") : FORMATS[shape.schema.format] ?? null}
    placeholder=${kind in TYPES ? null : hint} autocomplete="off" value=${draft} onInput=${onInput} />`;
}

/** Return the bounds of a number in words. @param {Record<string, any>} schema */
function rangeOf({ minimum, maximum }) {
  if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`;
  if (minimum !== undefined) return `at least ${minimum}`;
  return maximum === undefined ? "" : `at most ${maximum}`;
}
