// A field whose text is in the address as `q`, a moment after it was typed. `/` leads to it.

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
