// Ctrl-K: go anywhere and do anything by typing. Pages add what they can do; workflows and executions are found
// by their names and ids.

import { listExecutions, listWorkflows } from "../api.js";
import { Dialog, openDialog } from "./dialog.js";
import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { navigate, to } from "./router.js";

/** @typedef {{name: string, hint?: string, act: () => void, keys?: string}} Command */

/** @type {Set<() => Command[]>} */
const sources = new Set();
let open = false;

/** Offer commands while the component is shown. @param {() => Command[]} commands */
export function useCommands(commands) {
  const latest = useRef(commands);
  latest.current = commands;
  useEffect(() => {
    const source = () => latest.current();
    sources.add(source);
    return () => {
      sources.delete(source);
    };
  }, []);
}

/**
 * Return how well a text fits what was typed; 0: not at all. Each word typed must be in the text.
 * @param {string} text @param {string} typed
 */
export function fit(text, typed) {
  const here = text.toLowerCase();
  let score = 1;
  for (const word of typed.toLowerCase().split(/\s+/).filter(Boolean)) {
    const at = here.indexOf(word);
    if (at < 0) return 0;
    score += at === 0 ? 4 : /[\s\-_./:]/.test(here[at - 1]) ? 2 : 1;
  }
  return score;
}

export async function openPalette() {
  if (open) return;
  open = true;
  await openDialog((close) => html`<${Palette} close=${close} />`);
  open = false;
}

const ID = /^[0-9a-f]{8}(-[0-9a-f]{0,4}){0,3}(-[0-9a-f]{0,12})?$/i;

/** @param {{close: () => void}} props */
function Palette({ close }) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const [found, setFound] = useState(/** @type {Command[]} */ ([]));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const own = useMemo(() => [...sources].reverse().flatMap((source) => source()), []);
  useEffect(() => find(typed, setFound), [typed]);
  const shown = useMemo(() => {
    const fitting = own
      .map((command) => ({ command, score: fit(`${command.name} ${command.hint ?? ""}`, typed) }))
      .filter((one) => one.score > 0);
    if (typed.trim()) fitting.sort((a, b) => b.score - a.score);
    return [...fitting.map((one) => one.command), ...found].slice(0, 40);
  }, [typed, found]);
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [at, shown]);
  /** @param {Command | undefined} command */
  const run = (command) => {
    if (!command) return;
    close();
    command.act();
  };
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((now) => (shown.length ? (now + step + shown.length) % shown.length : 0));
    else if (event.key === "Enter") run(shown[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Go to or do" hideTitle top onClose=${close}>
    <input
      class="palette-input"
      type="text"
      role="combobox"
      aria-label="Go to or do"
      aria-expanded="true"
      aria-controls="palette-list"
      aria-activedescendant=${shown.length ? `palette-${at}` : null}
      placeholder="Go to a page, a workflow, an execution; or do something"
      autofocus
      spellcheck=${false}
      value=${typed}
      onInput=${(/** @type {any} */ event) => (setTyped(event.target.value), setAt(0))}
      onKeyDown=${onKeyDown}
    />
    <ul id="palette-list" class="palette-list" role="listbox" aria-label="Commands" ref=${list}>
      ${shown.map(
        (command, i) => html`<li
          id=${`palette-${i}`}
          role="option"
          aria-selected=${i === at ? "true" : "false"}
          class="palette-item"
          onMouseMove=${() => i !== at && setAt(i)}
          onClick=${() => run(command)}
        >
          <bdi class="ellipsis">${command.name}</bdi>
          <span class="muted small grow ellipsis">${command.hint}</span>
          ${command.keys && command.keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}
        </li>`,
      )}
      ${shown.length === 0 && html`<li class="palette-none muted">Nothing is called so.</li>`}
    </ul>
  </${Dialog}>`;
}

/**
 * Look for workflows and executions on the server, a moment after the last key.
 * @param {string} typed @param {(found: Command[]) => void} show
 */
function find(typed, show) {
  const text = typed.trim();
  show(ID.test(text) && text.length === 36 ? [executionCommand(text, "open")] : []);
  if (!text) return undefined;
  const stop = new AbortController();
  const timer = setTimeout(async () => {
    const [workflows, executions] = await Promise.all([
      listWorkflows({ limit: 500 }, stop.signal).then((page) => page.items, () => []),
      listExecutions({ q: text, limit: 8 }, stop.signal).then((page) => page.items, () => []),
    ]);
    if (stop.signal.aborted) return;
    const named = workflows.filter((one) => fit(one.name, text)).slice(0, 8);
    const commands = [
      ...named.map((one) => ({
        name: one.name, hint: `workflow, version ${one.version}`, act: () => navigate(to("workflows", one.name)),
      })),
      ...executions.map((one) => executionCommand(one.id, `${one.workflow ?? "execution"} · ${one.state.toLowerCase()}`)),
    ];
    if (ID.test(text) && text.length === 36 && !executions.length) commands.push(executionCommand(text, "open"));
    show(commands);
  }, 150);
  return () => {
    stop.abort();
    clearTimeout(timer);
  };
}

/** @param {string} id @param {string} hint @returns {Command} */
function executionCommand(id, hint) {
  return { name: id, hint, act: () => navigate(to("executions", id)) };
}
