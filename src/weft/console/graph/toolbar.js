// The row above the drawing: search, failures, zoom; and below it the states with their numbers. Plain DOM.

import { formatCount } from "../ui/time.js";
import { STATES } from "./palette.js";

/**
 * @typedef {{
 *   search(text: string, step: number): string, nextFailure(step: 1 | -1): void, fit(): void,
 *   zoom(factor: number): void, toggleAll(): void,
 * }} Commands
 */

/**
 * Return a button that the keyboard and screen readers know by name.
 * @param {string} text
 * @param {string} name
 * @param {() => void} press
 */
export function button(text, name, press) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.title = name;
  if (text !== name) made.setAttribute("aria-label", name);
  made.addEventListener("click", press);
  return made;
}

/** @param {Commands} commands */
export function toolbarOf(commands) {
  const row = document.createElement("div");
  row.className = "weft-graph-tools";
  row.setAttribute("role", "toolbar");
  row.setAttribute("aria-label", "Graph");
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Find a node";
  field.setAttribute("aria-label", "Find a node by id or handler");
  field.autocomplete = "off";
  field.spellcheck = false;
  const found = document.createElement("span");
  found.className = "weft-graph-found";
  found.setAttribute("role", "status");
  const search = (/** @type {number} */ step) => {
    found.textContent = commands.search(field.value, step);
  };
  field.addEventListener("input", () => search(0));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") search(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape" && field.value !== "") {
      field.value = "";
      search(0);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const failures = button("✕ Next failure", "Next failure (n)", () => commands.nextFailure(1));
  const all = button("", "", () => commands.toggleAll());
  const space = document.createElement("span");
  space.className = "weft-graph-space";
  row.append(
    ...[field, found, space, failures, all],
    button("−", "Zoom out (-)", () => commands.zoom(0.8)),
    button("+", "Zoom in (+)", () => commands.zoom(1.25)),
    button("Fit", "Fit the graph into view (f)", () => commands.fit()),
  );
  const update = (/** @type {{failed: number, staged: boolean, open: boolean}} */ now) => {
    failures.hidden = now.failed === 0;
    all.hidden = !now.staged;
    all.textContent = now.open ? "Show stages" : "Show all nodes";
    all.title = `${all.textContent} (e)`;
  };
  const setSearch = (/** @type {string} */ text) => {
    field.value = text;
    search(0);
  };
  return { row, update, setSearch };
}

/** Return the list of states and what writes their numbers into it. */
export function legendOf() {
  const list = document.createElement("div");
  list.className = "weft-graph-legend";
  list.setAttribute("aria-hidden", "true");
  const entries = STATES.map(({ name, word, text }) => {
    const entry = document.createElement("span");
    const dot = document.createElement("i");
    dot.style.background = `var(--state-${name})`;
    dot.textContent = text;
    const label = document.createElement("span");
    entry.append(dot, label);
    list.append(entry);
    return { entry, dot, label, word };
  });
  const update = (/** @type {Uint32Array} */ counts, /** @type {string[]} */ inks) => {
    entries.forEach(({ entry, dot, label, word }, state) => {
      entry.hidden = counts[state] === 0;
      const text = `${formatCount(counts[state])} ${word}`;
      if (dot.style.color !== inks[state]) dot.style.color = inks[state];
      if (label.textContent !== text) label.textContent = text;
    });
  };
  return { list, update };
}
