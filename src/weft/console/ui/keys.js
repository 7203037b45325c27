// Keys: pages say which they take, and `?` lists them. A key is a character as typed ("n", "/", "?"), a name
// ("Escape", "Enter", "ArrowDown"), or two characters one after the other ("g e").

import { useEffect, useLayoutEffect, useRef, useState } from "./preact.js";

/** @typedef {{keys: string, does: string, act: (event: KeyboardEvent) => void, group: string}} KeyUse */

/** @type {KeyUse[]} the last one that was added is asked first */
const uses = [];
let prefix = "";
let prefixAt = 0;

/**
 * Take keys while the component is shown: ``useKeys("Graph", {"n": ["Next failure", next]})``.
 * @param {string} group the heading in the list of keys
 * @param {Record<string, [string, (event: KeyboardEvent) => void]>} bindings
 */
export function useKeys(group, bindings) {
  const latest = useRef(bindings);
  latest.current = bindings;
  const names = Object.keys(bindings).join("\n");
  // Before it is painted: whoever sees what a key does may press it.
  useLayoutEffect(() => {
    const added = Object.entries(latest.current).map(([keys, [does]]) => ({
      keys, does, group, act: (/** @type {KeyboardEvent} */ event) => latest.current[keys]?.[1](event),
    }));
    uses.push(...added);
    return () => {
      for (const one of added) uses.splice(uses.indexOf(one), 1);
    };
  }, [names, group]);
}

/**
 * Walk the rows of a list by keys; return the index of the one at hand, or -1.
 * @template T
 * @param {string} group @param {T[]} rows @param {(row: T) => void} open @param {readonly any[]} inputs when they change, none is at hand
 */
export function useRowKeys(group, rows, open, inputs) {
  const [at, setAt] = useState(-1);
  useEffect(() => setAt(-1), inputs);
  const move = (/** @type {number} */ step) => setAt((now) => Math.max(0, Math.min(rows.length - 1, now + step)));
  useKeys(group, {
    j: ["Next row", () => move(1)],
    k: ["Row before", () => move(-1)],
    Enter: ["Open the row", () => rows[at] && open(rows[at])],
  });
  return at;
}

/** Move the focus to the next group that opens, or the one before. @param {1 | -1} step */
export function focusToggle(step) {
  const toggles = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".letter-toggle")]);
  const at = toggles.findIndex((one) => one.closest("li")?.contains(document.activeElement));
  toggles[Math.max(0, Math.min(toggles.length - 1, at + step))]?.focus();
}

/** Return what the present page does by which key, grouped. @returns {Map<string, KeyUse[]>} */
export function keysInUse() {
  /** @type {Map<string, KeyUse[]>} */
  const groups = new Map();
  for (const use of uses) groups.set(use.group, [...(groups.get(use.group) ?? []), use]);
  return groups;
}

/** True if the user is typing text there. @param {EventTarget | null} target */
export function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  return target instanceof HTMLInputElement && !["checkbox", "radio", "button", "range"].includes(target.type);
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape" && event.target instanceof HTMLElement) event.target.blur();
    return;
  }
  // A button or a link that has the focus takes Enter and the space bar itself.
  const taken = event.key === "Enter" || event.key === " ";
  if (taken && event.target instanceof Element && event.target.closest("button, a, summary")) return;
  const both = prefix && event.timeStamp - prefixAt < 1500 ? `${prefix} ${event.key}` : "";
  prefix = "";
  const found = (both && uses.findLast((use) => use.keys === both)) || uses.findLast((use) => use.keys === event.key);
  if (found) {
    event.preventDefault();
    found.act(event);
  } else if (uses.some((use) => use.keys.startsWith(`${event.key} `))) {
    prefix = event.key;
    prefixAt = event.timeStamp;
  }
}

/** Begin to listen; the shell calls this once. */
export function listenForKeys() {
  addEventListener("keydown", pressed);
}
