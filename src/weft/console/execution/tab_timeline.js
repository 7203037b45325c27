// When each attempt waited and ran, in lanes by node or by worker, and the path that decided how long it took.

import { Empty, Loading, ProblemNote } from "../ui/load.js";
import { useKeys } from "../ui/keys.js";
import { html, useEffect, useRef } from "../ui/preact.js";
import { setQuery } from "../ui/router.js";
import { formatSeconds } from "../ui/time.js";
import { Mounted } from "./mounted.js";
import { NodeLink } from "./node_sheet.js";

/**
 * @param {{topology: import("../types").Topology, loaded: import("../ui/load.js").Loaded<import("../types").Timeline | null>,
 *   node: string | null, by: string}} props
 */
export function TimelineTab({ topology, loaded, node, by }) {
  const { data: timeline, problem, reload } = loaded;
  const handle = useRef(/** @type {any} */ (null));
  const lanes = by === "worker" ? "worker" : "node";
  const index = node === null ? -1 : topology.nodes.indexOf(node);
  useEffect(() => {
    if (handle.current && timeline) handle.current.update(timeline);
  }, [timeline]);
  useEffect(() => {
    if (handle.current) handle.current.select(index < 0 ? null : index);
  }, [index]);
  useKeys("Timeline", {
    f: ["The whole time", () => handle.current?.fit()],
    c: ["The critical path alone", () => handle.current?.togglePath()],
  });
  if (problem && !timeline) return html`<${ProblemNote} problem=${problem} retry=${reload} />`;
  if (!timeline) return html`<${Loading} />`;
  if (!timeline.attempts.node.length) return html`<${Empty} title="No attempt has started yet." />`;
  const load = async () => {
    const path = "../timeline/view.js";
    const { mountTimeline } = await import(path);
    return (/** @type {HTMLElement} */ element) =>
      mountTimeline(element, {
        timeline,
        topology,
        by: lanes,
        onSelect: (/** @type {number | null} */ i) => setQuery({ node: i === null || i < 0 ? null : topology.nodes[i] }),
      });
  };
  const onMounted = (/** @type {any} */ mounted) => {
    handle.current = mounted;
    if (mounted && index >= 0) mounted.select(index);
  };
  return html`
    <div class="row wrap tab-tools" role="group" aria-label="Lanes">
      <button class="chip" aria-pressed=${String(lanes === "node")} onClick=${() => setQuery({ by: null })}>by node</button>
      <button class="chip" aria-pressed=${String(lanes === "worker")} onClick=${() => setQuery({ by: "worker" })}>by worker</button>
    </div>
    <${Mounted} load=${load} inputs=${[lanes, topology]} name="The timeline" className="timeline-box" onMounted=${onMounted} fallback=${html`<${CriticalPath} path=${timeline.critical_path} />`} />`;
}

/** The path as a table. @param {{path: import("../types").Timeline["critical_path"]}} props */
function CriticalPath({ path }) {
  if (!path.length) return null;
  return html`<div class="scroll-x"><table><caption class="sr-only">Critical path</caption>
    <thead><tr><th>Node</th><th class="number">Attempt</th><th class="number">Waited</th><th class="number">Took</th></tr></thead>
    <tbody>${path.map((step) => html`<tr><td><${NodeLink} name=${step.node} /></td><td class="number">${step.attempt}</td>
      <td class="number">${formatSeconds(step.waiting_ms / 1000)}</td><td class="number">${formatSeconds((step.finished_ms - step.started_ms) / 1000)}</td></tr>`)}</tbody>
  </table></div>`;
}
