// What narrows a list, in its address: a text as `q`, a moment after it was typed (`/` leads to it), and a workflow.

import { listWorkflows } from "../api.js";
import { useLoad } from "./load.js";
import { html, useEffect, useRef, useState } from "./preact.js";
import { setQuery } from "./router.js";

const PAUSE_MS = 300;

/** @param {{value: string, label: string, hint: string, besides?: Record<string, string | null>}} props `besides`: what else changes with it */
export function SearchField({ value, label, hint, besides = {} }) {
  const [typed, setTyped] = useState(value);
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  useEffect(() => setTyped(value), [value]);
  const onInput = (/** @type {any} */ event) => {
    const text = event.target.value;
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ ...besides, q: text.trim() }, { replace: true }), PAUSE_MS);
  };
  return html`<input class="search" type="search" aria-label=${label} placeholder=${`${hint}  ( / )`} value=${typed} onInput=${onInput} />`;
}

/** One of the workflows, or any. @param {{workflow: string | null}} props */
export function WorkflowSelect({ workflow }) {
  const { data } = useLoad((signal) => listWorkflows({ limit: 500 }, signal), []);
  const names = (data?.items ?? []).map((one) => one.name);
  return html`<select aria-label="Workflow" value=${workflow ?? ""} onChange=${(/** @type {any} */ event) => setQuery({ workflow: event.target.value, open: null, after: null })}>
    <option value="">any workflow</option>
    ${(workflow && !names.includes(workflow) ? [workflow, ...names] : names).map((name) => html`<option value=${name} selected=${name === workflow}>${name}</option>`)}
  </select>`;
}
