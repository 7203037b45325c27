// JSON as a tree. It opens what is small, draws at most some hundred children at a time, and shows every text as
// text: markup, control characters and directions of writing do nothing.

import { html, useMemo, useState } from "./preact.js";
import { Icon } from "./icons.js";
import { CopyButton } from "./parts.js";

const OPEN_UP_TO = 20;
const CHILDREN_AT_ONCE = 100;
const TEXT_AT_ONCE = 2000;

/**
 * Return a text with what cannot be seen written out, as `\u0007` or `\u202e`.
 * @param {string} text
 */
export function visible(text) {
  // Controls but for tab and line feed, and marks that change the direction of writing.
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (one) =>
    `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/**
 * @param {{value: any, label: string}} props
 */
export function JsonTree({ value, label }) {
  const isTree = value !== null && typeof value === "object";
  return html`<div class="json" role="group" aria-label=${label}>
    <div class="json-tools"><${CopyButton} text=${() => JSON.stringify(value, null, 2)} what="JSON copied" /></div>
    ${isTree ? html`<${Branch} value=${value} name=${null} depth=${0} />` : html`<div class="json-row"><${Leaf} value=${value} /></div>`}
  </div>`;
}

/** @param {{value: any, name: string | number | null, depth: number}} props */
function Branch({ value, name, depth }) {
  const isList = Array.isArray(value);
  const keys = useMemo(() => (isList ? null : Object.keys(value)), [value]);
  const count = keys ? keys.length : value.length;
  const [open, setOpen] = useState(count > 0 && (depth === 0 || (depth < 3 && count <= OPEN_UP_TO)));
  const [shown, setShown] = useState(CHILDREN_AT_ONCE);
  const [before, after] = isList ? "[]" : "{}";
  const summary = count === 0 ? `${before}${after}` : `${before} ${count} ${isList ? "item" : "key"}${count === 1 ? "" : "s"} ${after}`;
  const children = [];
  for (let i = 0; open && i < Math.min(shown, count); i++) {
    const key = keys ? keys[i] : i;
    const child = value[key];
    children.push(
      child !== null && typeof child === "object"
        ? html`<${Branch} key=${key} value=${child} name=${key} depth=${depth + 1} />`
        : html`<div key=${key} class="json-row"><${Name} name=${key} /><${Leaf} value=${child} /></div>`,
    );
  }
  return html`<div class="json-branch">
    <button class="json-toggle" aria-expanded=${String(open)} disabled=${count === 0} onClick=${() => setOpen(!open)}>
      <span class="json-caret">${count > 0 && html`<${Icon} name=${open ? "down" : "right"} />`}</span>
      <${Name} name=${name} /><span class="muted json-summary">${summary}</span>
    </button>
    ${open && html`<div class="json-children">
      ${children}
      ${shown < count && html`<button class="link small" onClick=${() => setShown(shown + 10 * CHILDREN_AT_ONCE)}>
        ${`show more of ${count - shown}`}
      </button>`}
    </div>`}
  </div>`;
}

/** @param {{name: string | number | null}} props */
function Name({ name }) {
  if (name === null) return null;
  return html`<span class=${typeof name === "number" ? "json-index" : "json-key"}><bdi>${typeof name === "number" ? name : visible(name)}</bdi>: </span>`;
}

/** @param {{value: any}} props */
function Leaf({ value }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string") {
    return html`<span class=${typeof value === "number" ? "json-number" : "json-word"}>${String(value)}</span>`;
  }
  const cut = !whole && value.length > TEXT_AT_ONCE;
  const text = visible(cut ? value.slice(0, TEXT_AT_ONCE) : value);
  return html`<span class="json-string"><bdi>"${text}${cut ? "…" : ""}"</bdi>
    ${cut && html` <button class="link small" onClick=${() => setWhole(true)}>all ${value.length} characters</button>`}</span>`;
}
