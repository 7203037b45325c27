// All nodes as a table: what the graph shows, for those who read, search and sort.

import { Empty } from "../ui/load.js";
import { useKeys } from "../ui/keys.js";
import { html, useMemo, useState } from "../ui/preact.js";
import { setQuery } from "../ui/router.js";
import { STATES, State, countsOf } from "../ui/states.js";
import { Ago, Duration, formatBytes, formatCount } from "../ui/time.js";
import { VirtualList } from "../ui/virtual_list.js";

/**
 * Return the indexes of the nodes that fit: in one of the states, with the text in their id or handler.
 * @param {import("../types").Topology} topology @param {Uint8Array | null} states
 * @param {{codes: number[], text: string}} filter
 */
export function fittingNodes(topology, states, { codes, text }) {
  const wanted = text.trim().toLowerCase();
  const handlers = topology.handlers.map((name) => name.toLowerCase().includes(wanted));
  const found = [];
  for (let i = 0; i < topology.nodes.length; i++) {
    if (codes.length && !codes.includes(states?.[i] ?? 0)) continue;
    if (wanted && !handlers[topology.handler[i]] && !topology.nodes[i].toLowerCase().includes(wanted)) continue;
    found.push(i);
  }
  return found;
}

/**
 * @param {{topology: import("../types").Topology, states: Uint8Array | null, frame: unknown, details: Map<string, import("../types").Node> | null,
 *   node: string | null, query: URLSearchParams}} props `frame`: another one where states changed
 */
export function NodesTab({ topology, states, frame, details, node, query }) {
  const codes = query.getAll("in").map((name) => STATES.findIndex((state) => state.name === name)).filter((code) => code >= 0);
  const text = query.get("find") ?? "";
  const [typed, setTyped] = useState(text);
  const found = useMemo(() => fittingNodes(topology, states, { codes, text }), [topology, frame, codes.join(), text]);
  const counts = useMemo(() => countsOf(states ?? new Uint8Array(0)), [frame]);
  const at = node === null ? -1 : found.findIndex((i) => topology.nodes[i] === node);
  const move = (/** @type {number} */ step) => {
    const next = found[Math.max(0, Math.min(found.length - 1, at + step))];
    if (next !== undefined) setQuery({ node: topology.nodes[next] }, { replace: true });
  };
  useKeys("Nodes", {
    j: ["Next node", () => move(1)],
    k: ["Node before", () => move(-1)],
    n: ["Next failure", () => nextFailure(topology, states, node)],
  });
  const toggle = (/** @type {number} */ code) => {
    const names = codes.includes(code) ? codes.filter((one) => one !== code) : [...codes, code];
    setQuery({ in: names.map((one) => STATES[one].name) });
  };
  const row = (/** @type {number} */ i) => html`<${NodeRow} key=${found[i]} index=${found[i]} topology=${topology} code=${states?.[found[i]]} detail=${details?.get(topology.nodes[found[i]])} chosen=${topology.nodes[found[i]] === node} />`;
  const head = html`<div class="node-row node-head" role="row">${["State", "Node", "Handler", "Attempt", "Started", "Duration", "Output", "Worker"].map((name) => html`<span role="columnheader">${name}</span>`)}</div>`;
  return html`<div class="row wrap tab-tools">
      <input type="search" class="search" aria-label="Find a node" placeholder="Node or handler  ( / )" value=${typed}
        onInput=${(/** @type {any} */ event) => (setTyped(event.target.value), setQuery({ find: event.target.value }, { replace: true }))} />
      <div class="chips" role="group" aria-label="States">
        ${STATES.filter((state) => counts[state.name] || codes.includes(state.code)).map((state) => html`<button class="chip" aria-pressed=${String(codes.includes(state.code))} onClick=${() => toggle(state.code)}>
          <span class=${`state-${state.css}`} aria-hidden="true">${state.sign}</span>${state.word} <span class="muted number">${formatCount(counts[state.name])}</span></button>`)}
      </div>
    </div>
    ${found.length
      ? html`<${VirtualList} className="node-list" label="Nodes" count=${found.length} rowHeight=${30} row=${row} head=${head} shown=${at} />`
      : html`<${Empty} title="No node fits." />`}`;
}

/** @param {import("../types").Topology} topology @param {Uint8Array | null} states @param {string | null} node */
export function nextFailure(topology, states, node) {
  const start = node === null ? -1 : topology.nodes.indexOf(node);
  const count = topology.nodes.length;
  for (let step = 1; step <= count; step++) {
    const i = (start + step + count) % count;
    if (states?.[i] === 4) return setQuery({ node: topology.nodes[i] });
  }
}

/** @param {{index: number, topology: import("../types").Topology, code: number | undefined, detail: import("../types").Node | undefined, chosen: boolean}} props */
function NodeRow({ index, topology, code, detail, chosen }) {
  const name = topology.nodes[index];
  const open = () => setQuery({ node: chosen ? null : name });
  return html`<div class=${`node-row${chosen ? " current" : ""}`} role="row" aria-rowindex=${index + 1} onClick=${open}>
    <span role="cell">${code === undefined ? "" : html`<${State} code=${code} />`}</span>
    <span role="cell" class="ellipsis"><button class="link node-name ellipsis" aria-pressed=${String(chosen)} onClick=${(/** @type {Event} */ event) => (event.stopPropagation(), open())}><bdi>${name}</bdi></button></span>
    <span role="cell" class="ellipsis muted">${topology.handlers[topology.handler[index]]}</span>
    <span role="cell" class="number">${detail ? (detail.reused ? "kept" : detail.cached ? "cached" : detail.attempt || "") : ""}</span>
    <span role="cell" class="ellipsis">${detail?.started_at && html`<${Ago} at=${detail.started_at} />`}</span>
    <span role="cell" class="number">${detail?.started_at && html`<${Duration} from=${detail.started_at} until=${detail.finished_at} />`}</span>
    <span role="cell" class="number muted">${detail && detail.output_bytes !== null ? formatBytes(detail.output_bytes) : ""}</span>
    <span role="cell" class="ellipsis mono muted">${detail?.worker ?? ""}</span>
  </div>`;
}
