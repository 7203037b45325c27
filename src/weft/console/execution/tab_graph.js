// The graph of the execution, and its states as they change.

import { useKeys } from "../ui/keys.js";
import { html, useCallback, useEffect, useRef } from "../ui/preact.js";
import { setQuery } from "../ui/router.js";
import { Mounted } from "./mounted.js";
import { NodesTab } from "./tab_nodes.js";

/** @typedef {import("./use_live.js").Source} Source */

/**
 * @param {{topology: import("../types").Topology, source: Source, node: string | null, nodesProps: any}} props
 */
export function GraphTab({ topology, source, node, nodesProps }) {
  const handle = useRef(/** @type {any} */ (null));
  const index = node === null ? -1 : topology.nodes.indexOf(node);
  const selected = useRef(index);
  useEffect(() => {
    // What the graph itself chose is in view already.
    if (handle.current && selected.current !== index) handle.current.select(index < 0 ? null : index);
    selected.current = index;
  }, [index]);
  useKeys("Graph", {
    n: ["Next failure", () => handle.current?.nextFailure()],
    f: ["The whole graph", () => handle.current?.fit()],
    e: ["All nodes, or stages", () => handle.current?.toggleAll()],
  });
  const load = async () => {
    const path = "../graph/view.js";
    const { mountGraph } = await import(path);
    const choose = (/** @type {number | null} */ i) => {
      const next = i === null || i === undefined || i < 0 ? -1 : i;
      if (next === selected.current) return;
      selected.current = next;
      setQuery({ node: next < 0 ? null : topology.nodes[next] });
    };
    return (/** @type {HTMLElement} */ element) =>
      mountGraph(element, {
        topology,
        states: source.now?.states ?? new Uint8Array(topology.nodes.length),
        selected: selected.current < 0 ? null : selected.current,
        onSelect: choose,
        onOpen: choose,
      });
  };
  const stop = useRef(() => {});
  const onMounted = useCallback(
    (/** @type {any} */ mounted) => {
      stop.current();
      handle.current = mounted;
      if (mounted) {
        if (source.now) mounted.setStates(source.now.states);
        stop.current = source.listen(mounted);
      }
    },
    [source],
  );
  return html`<${Mounted} load=${load} inputs=${[topology, source]} name="The graph" className="graph-box" onMounted=${onMounted} fallback=${html`<${NodesTab} ...${nodesProps} />`} />`;
}
