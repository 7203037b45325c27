// Short messages at the edge of the page: what was done, or why it was not.

import { Icon } from "./icons.js";
import { html, render } from "./preact.js";

/** @type {{id: number, text: any, kind: string}[]} */
let shown = [];
let count = 0;
/** @type {HTMLElement | null} */
let host = null;

/**
 * Tell the user something; a failure stays until it is closed.
 * @param {any} text @param {{kind?: "info" | "danger"}} [options]
 */
export function say(text, { kind = "info" } = {}) {
  const id = ++count;
  shown = [...shown.slice(-3), { id, text, kind }];
  draw();
  if (kind !== "danger") setTimeout(() => close(id), 5000);
}

/** Tell that a call was refused. @param {unknown} error @param {string} [what] what was tried */
export function sayProblem(error, what) {
  const text = error instanceof Error ? error.message : String(error);
  say(what ? `${what}: ${text}` : text, { kind: "danger" });
}

/** @param {number} id */
function close(id) {
  shown = shown.filter((one) => one.id !== id);
  draw();
}

function draw() {
  if (!host) {
    host = document.createElement("div");
    host.className = "toasts";
    host.setAttribute("role", "status");
    host.setAttribute("aria-live", "polite");
    document.body.append(host);
  }
  const list = shown.map(
    (one) => html`<div key=${one.id} class=${`toast toast-${one.kind}`}>
      <span class="grow break">${one.text}</span>
      <button class="plain" aria-label="Close this message" onClick=${() => close(one.id)}><${Icon} name="close" /></button>
    </div>`,
  );
  render(html`<div class="stack">${list}</div>`, host);
}
