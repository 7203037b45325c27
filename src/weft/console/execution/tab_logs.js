// What all nodes printed and logged.

import { html, useEffect, useState } from "../ui/preact.js";
import { setQuery } from "../ui/router.js";
import { LogView } from "./log_view.js";

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];

/** @param {{id: string, generation: number, query: URLSearchParams, node: string | null}} props */
export function LogsTab({ id, generation, query, node }) {
  const level = query.get("level");
  const [typed, setTyped] = useState(query.get("find") ?? "");
  const only = query.get("of") === "node" && node ? node : null;
  useEffect(() => setTyped(query.get("find") ?? ""), [query.get("find")]);
  return html`<div class="row wrap tab-tools">
      <input type="search" class="search" aria-label="Find in the lines" placeholder="Text in a line  ( / )" value=${typed}
        onInput=${(/** @type {any} */ event) => (setTyped(event.target.value), setQuery({ find: event.target.value }, { replace: true }))} />
      <select aria-label="Level" value=${level ?? ""} onChange=${(/** @type {any} */ event) => setQuery({ level: event.target.value })}>
        <option value="">all lines</option>
        ${LEVELS.map((name) => html`<option value=${name} selected=${name === level}>${`logged at ${name} or above`}</option>`)}
      </select>
      ${node && html`<button class="chip" aria-pressed=${String(only !== null)} onClick=${() => setQuery({ of: only ? null : "node" })}>only <bdi>${node}</bdi></button>`}
    </div>
    <${LogView} key=${generation} id=${id} node=${only} level=${level} search=${typed} />`;
}
