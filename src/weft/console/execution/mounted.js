// A drawing that manages its own element: loaded when it is first shown, and told what changes.

import { Loading, Note } from "../ui/load.js";
import { html, useEffect, useRef, useState } from "../ui/preact.js";

/**
 * @template H
 * @param {{
 *   load: () => Promise<(element: HTMLElement) => H>, inputs: readonly any[], name: string, className: string,
 *   onMounted?: (handle: H | null) => void, fallback?: any,
 * }} props `load` brings the function that mounts; another of `inputs` mounts anew
 */
export function Mounted({ load, inputs, name, className, onMounted, fallback }) {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const [state, setState] = useState("loading");
  useEffect(() => {
    let gone = false;
    /** @type {any} */
    let handle = null;
    load().then(
      (mount) => {
        if (gone || !element.current) return;
        try {
          handle = mount(element.current);
          setState("shown");
          onMounted?.(handle);
        } catch (error) {
          console.error(error);
          setState("failed");
        }
      },
      (error) => {
        console.error(error);
        if (!gone) setState("missing");
      },
    );
    return () => {
      gone = true;
      onMounted?.(null);
      handle?.destroy();
      if (element.current) element.current.replaceChildren();
    };
  }, inputs);
  return html`
    ${state === "loading" && html`<${Loading} />`}
    ${state === "missing" && html`<${Note} kind="warning">${`${name} could not be loaded: the server may have been replaced by another version.`}</${Note}>${fallback}`}
    ${state === "failed" && html`<${Note} kind="warning">${`${name} could not be drawn; the browser's console says why.`}</${Note}>${fallback}`}
    <div class=${`${className}${state === "missing" || state === "failed" ? " hidden" : ""}`} ref=${element}></div>`;
}
