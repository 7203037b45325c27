// Dialogs: the browser's own <dialog> keeps the focus inside, and Escape closes it.

import { html, render, useEffect, useRef, useState } from "./preact.js";

let count = 0;

/**
 * @param {{title: string, onClose: () => void, children?: any, footer?: any, wide?: boolean, top?: boolean, hideTitle?: boolean}} props
 */
export function Dialog({ title, onClose, children, footer, wide = false, top = false, hideTitle = false }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [name] = useState(() => `dialog-${++count}`);
  useEffect(() => {
    const dialog = /** @type {HTMLDialogElement} */ (ref.current);
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      if (dialog.open) dialog.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const kind = `dialog${wide ? " dialog-wide" : ""}${top ? " dialog-top" : ""}`;
  return html`<dialog
    ref=${ref}
    class=${kind}
    aria-labelledby=${name}
    onCancel=${(/** @type {Event} */ event) => {
      event.preventDefault();
      onClose();
    }}
    onMouseDown=${(/** @type {MouseEvent} */ event) => event.target === ref.current && onClose()}
  >
    <div class="dialog-inner">
      <h2 id=${name} class=${hideTitle ? "sr-only" : "dialog-title"}>${title}</h2>
      <div class="dialog-body">${children}</div>
      ${footer && html`<div class="dialog-footer">${footer}</div>`}
    </div>
  </dialog>`;
}

/**
 * Show a dialog from anywhere; `draw` gets how to close it, with a result.
 * @template T
 * @param {(close: (result?: T) => void) => any} draw
 * @returns {Promise<T | undefined>}
 */
export function openDialog(draw) {
  const host = document.createElement("div");
  document.body.append(host);
  return new Promise((resolve) => {
    /** @param {T} [result] */
    const close = (result) => {
      render(null, host);
      host.remove();
      resolve(result);
    };
    render(draw(close), host);
  });
}

/**
 * Ask before something is done that cannot be taken back; true: do it.
 * @param {{title: string, body?: any, verb: string, danger?: boolean}} question
 * @returns {Promise<boolean>}
 */
export async function confirm({ title, body, verb, danger = false }) {
  const answer = await openDialog(
    (/** @type {(result?: boolean) => void} */ close) => html`<${Dialog}
      title=${title}
      onClose=${() => close(false)}
      footer=${[
        html`<button autofocus onClick=${() => close(false)}>Keep as it is</button>`,
        html`<button class=${`primary${danger ? " danger" : ""}`} onClick=${() => close(true)}>${verb}</button>`,
      ]}
    >${body}</${Dialog}>`,
  );
  return answer === true;
}
