// The small parts that every page has: heading, tabs, menu, copy button, progress bar, labels, id.

import { Icon } from "./icons.js";
import { visible } from "./json_tree.js";
import { html, useEffect, useRef, useState } from "./preact.js";
import { href, place } from "./router.js";
import { STATES, stateOf } from "./states.js";
import { formatCount } from "./time.js";
import { say } from "./toast.js";

/**
 * The head of a page: what it is, and what can be done there.
 * @param {{title: any, about?: any, actions?: any, children?: any}} props
 */
export function PageHeader({ title, about, actions, children }) {
  return html`<header class="page-header">
    <div class="page-heading">
      <h1 class="page-title">${title}</h1>
      ${about && html`<div class="page-about muted">${about}</div>`}
      ${actions && html`<div class="page-actions row wrap">${actions}</div>`}
    </div>
    ${children}
  </header>`;
}

/**
 * Tabs as links, so that each has an address.
 * @param {{label: string, current: string, tabs: {id: string, name: string, href: string, count?: number | null}[]}} props
 */
export function Tabs({ label, current, tabs }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  // On a narrow window the tabs scroll.
  useEffect(() => ref.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [current]);
  return html`<nav class="tabs" aria-label=${label} ref=${ref}>
    ${tabs.map(
      (tab) => html`<a class="tab" href=${tab.href} aria-current=${tab.id === current ? "page" : null}>
        ${tab.name}${tab.count !== null && tab.count !== undefined ? html` <span class="tab-count">${formatCount(tab.count)}</span>` : null}
      </a>`,
    )}
  </nav>`;
}

/**
 * A button that opens a list of actions.
 * @param {{label: string, items: ({name: string, act: () => void, danger?: boolean, disabled?: boolean, hint?: string} | null | false)[], title?: string, plain?: boolean}} props
 */
export function Menu({ label, items, title, plain = false }) {
  const [open, setOpen] = useState(false);
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  const list = items.filter((item) => Boolean(item));
  useEffect(() => {
    if (!open) return undefined;
    const buttons = () => /** @type {HTMLElement[]} */ ([...(ref.current?.querySelectorAll("[role=menuitem]") ?? [])]);
    buttons()[0]?.focus();
    const outside = (/** @type {Event} */ event) => {
      if (!ref.current?.contains(/** @type {Element} */ (event.target))) setOpen(false);
    };
    const key = (/** @type {KeyboardEvent} */ event) => {
      const all = buttons();
      const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
      if (event.key === "Escape") {
        setOpen(false);
        ref.current?.querySelector("button")?.focus();
      } else if (event.key === "ArrowDown") all[(at + 1) % all.length]?.focus();
      else if (event.key === "ArrowUp") all[(at - 1 + all.length) % all.length]?.focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", key, true);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", key, true);
    };
  }, [open]);
  return html`<div class="menu" ref=${ref}>
    <button type="button" class=${plain ? "plain" : ""} title=${title} aria-haspopup="menu" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>
      ${label} <${Icon} name="down" />
    </button>
    ${open &&
    html`<div class="menu-list" role="menu" aria-label=${title ?? label}>
      ${list.map(
        (item) => item && html`<button type="button"
          role="menuitem"
          class=${`plain menu-item${item.danger ? " danger" : ""}`}
          disabled=${item.disabled}
          onClick=${() => (setOpen(false), item.act())}
        ><span>${item.name}</span>${item.hint && html`<span class="muted small">${item.hint}</span>`}</button>`,
      )}
    </div>`}
  </div>`;
}

/**
 * Steps through the pages of a list. The cursors of the pages before are in the address, so that every page has one.
 * @param {{query: URLSearchParams, next: string | null | undefined, label: string}} props
 */
export function Pager({ query, next, label }) {
  const { path } = place();
  const trail = query.getAll(AFTER);
  if (!next && !trail.length) return null;
  const at = (/** @type {string[]} */ cursors) => {
    const changed = new URLSearchParams(query);
    changed.delete(AFTER);
    for (const cursor of cursors.slice(-MOST_CURSORS)) changed.append(AFTER, cursor);
    return href(path, changed);
  };
  return html`<nav class="pager row wrap" aria-label=${`Pages of ${label}`}>
    ${trail.length > 0 && html`<a class="button" href=${at([])}>First page</a><a class="button" href=${at(trail.slice(0, -1))}>Page before</a>`}
    ${next ? html`<a class="button" href=${at([...trail, next])}>Next page</a>` : html`<span class="muted">This is the last page.</span>`}
  </nav>`;
}

/** Return the cursor of the page that an address names; undefined: the first one. @param {URLSearchParams} query */
export function cursorOf(query) {
  return query.getAll(AFTER).at(-1);
}

const AFTER = "after";
const MOST_CURSORS = 20;

/** Copy a text and say so. @param {string} text @param {string} [what] */
export async function copyText(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // The clipboard belongs to secure contexts; this way works on plain HTTP too.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "sr-only";
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(what);
}

/** @param {{text: string | (() => string), label?: string, what?: string}} props */
export function CopyButton({ text, label, what = "Copied" }) {
  const copy = () => copyText(typeof text === "string" ? text : text(), what);
  // "Trace id copied" is what "Copy trace id" says when it is done.
  const name = label ? null : `Copy ${what.toLowerCase().replace(/ ?copied$/, "")}`.trim();
  return html`<button type="button" class=${label ? "" : "plain icon-button"} title=${name} aria-label=${name} onClick=${copy}>
    ${label ?? html`<${Icon} name="copy" />`}
  </button>`;
}

/** The order in which a bar shows states: what is done first, then what moves, then what waits. */
const ORDER = [...[3, 5, 6, 4, 2, 7, 1, 8].map((code) => STATES[code].name), "PAUSED", "PENDING"];

/**
 * How far an execution or a batch is, as a bar in a segment per state, and as text for those who do not see it.
 * @param {{counts: Record<string, number>, text?: boolean, of?: string}} props `counts` by the API's names of states
 */
export function ProgressBar({ counts, text = false, of = "nodes" }) {
  const parts = ORDER.map((name) => ({ state: stateOf(name), count: counts[name] ?? 0 })).filter((part) => part.count);
  const total = parts.reduce((sum, part) => sum + part.count, 0);
  const done = ["COMPLETED", "SKIPPED", "CANCELLED", "FAILED"].reduce((sum, name) => sum + (counts[name] ?? 0), 0);
  const said = parts.map((part) => `${part.count} ${part.state.word}`).join(", ");
  return html`<div class="progress" title=${said}>
    <div class="progress-bar" role="img" aria-label=${`${done} of ${total} ${of} settled: ${said}`}>
      ${parts.map((part) => html`<span class=${`progress-part fill-${part.state.css}`} style=${{ flexGrow: part.count }}></span>`)}
    </div>
    ${text && html`<span class="progress-text number" aria-hidden="true">${formatCount(done)}/${formatCount(total)}</span>`}
  </div>`;
}

/** Labels as small tags; a click narrows the list to them. @param {{labels: Record<string, string>, onPick?: (label: string) => void}} props */
export function Labels({ labels, onPick }) {
  const all = Object.entries(labels ?? {});
  if (!all.length) return null;
  return html`<span class="labels">
    ${all.map(([key, value]) => {
      const text = html`<bdi>${key}</bdi><span class="muted">:</span><bdi>${visible(value)}</bdi>`;
      if (!onPick) return html`<span class="label" title=${`${key}: ${value}`}>${text}</span>`;
      const pick = (/** @type {Event} */ event) => (event.preventDefault(), event.stopPropagation(), onPick(`${key}:${value}`));
      return html`<button class="label" title=${`Only executions with ${key}: ${value}`} onClick=${pick}>${text}</button>`;
    })}
  </span>`;
}

/** Return the short form of an id: its random end, which tells ids of one moment apart. @param {string} id */
export function shortId(id) {
  return id.length === 36 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id;
}

/** A legend of counts: "12 running · 3 failed". @param {{counts: Record<string, number>}} props */
export function Counts({ counts }) {
  const shown = Object.entries(counts).filter(([, count]) => count > 0);
  return html`<span class="counts">
    ${shown.map(([name, count]) => {
      const state = stateOf(name);
      return html`<span class=${`state state-${state.css}`}><span class="state-sign" aria-hidden="true">${state.sign}</span>
        <span><span class="number">${formatCount(count)}</span> ${state.word}</span></span>`;
    })}
  </span>`;
}
