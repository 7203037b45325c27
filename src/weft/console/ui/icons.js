// Icons as paths in a box of 16 by 16: fonts do not have all signs everywhere. An icon says nothing alone; what it
// stands beside, or the name of its button, does.

import { html } from "./preact.js";

/** @type {Record<string, string>} */
const PATHS = {
  home: "M2.5 7.5 8 2.5l5.5 5M4 6.5v7h8v-7M6.8 13.5v-4h2.4v4",
  executions: "M2.5 3.5h11M2.5 8h11M2.5 12.5h7",
  workflows: "M4 5.5v5M4 8h4.5c2 0 3.5-1 3.5-2.5M2.5 4a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0M2.5 12a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0M10.5 4a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0",
  inbox: "M2.5 9.5v4h11v-4l-2-6.5h-7zM2.5 9.5h3.2c0 1.3 1 2.2 2.3 2.2s2.3-.9 2.3-2.2h3.2",
  triggers: "M8 3a5.5 5.5 0 1 0 0 11A5.5 5.5 0 1 0 8 3M8 5.8v2.9l2 1.3M3.2 2 1.7 3.4M12.800 2l1.5 1.4",
  batches: "M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM9 9h4.5v4.5H9z",
  dead_letters: "M2.5 4h11v8.5h-11zM2.5 4.5 8 9l5.5-4.5M10.3 9.8l2.2 2.2M3.5 12l2.2-2.2",
  workers: "M3 3h10v10H3zM6 6h4v4H6zM6 3V1.5M10 3V1.5M6 14.5V13M10 14.5V13M3 6H1.5M3 10H1.5M14.5 6H13M14.5 10H13",
  about: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M8 7.2v4M8 4.8v.4",
  find: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 1 0 0-9M10.3 10.3l3.2 3.2",
  light: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 1 0 0-5.6M8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  dark: "M13.2 9.7A5.6 5.6 0 0 1 6.3 2.8a5.6 5.6 0 1 0 6.9 6.9z",
  keys: "M1.5 4.5h13v7.5h-13zM4 7h.6M6.7 7h.6M9.4 7h.6M12 7h.300M4.5 9.6h7",
  leave: "M6.5 2.5h-4v11h4M10 5l3 3-3 3M13 8H6",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  close: "M4 4l8 8M12 4l-8 8",
  down: "M4.5 6.5 8 10l3.5-3.5",
  right: "M6.5 4.5 10 8l-3.5 3.5",
};

/** @param {{name: string}} props */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false"><path d=${PATHS[name] ?? ""} /></svg>`;
}
