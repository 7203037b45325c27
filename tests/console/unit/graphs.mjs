// Graphs for the tests of the drawing: columns as the topology of the API has them.

/** @param {number} layers @param {number} width */
export function layered(layers, width) {
  const from = [];
  const to = [];
  for (let at = 0; at < layers * width; at++) {
    const layer = Math.floor(at / width);
    if (layer === 0) continue;
    const place = at % width;
    for (const other of new Set([place, (place * 7 + 1) % width])) {
      from.push((layer - 1) * width + other);
      to.push(at);
    }
  }
  return topology(layers * width, from, to, (i) => `l${Math.floor(i / width)}_${i % width}`);
}

/** 1 → width → width → 1. @param {number} width */
export function fan(width) {
  const from = [];
  const to = [];
  for (let i = 0; i < width; i++) {
    from.push(0, 1 + i, 1 + width + i);
    to.push(1 + i, 1 + width + i, 1 + 2 * width);
  }
  const graph = topology(2 + 2 * width, from, to, (i) => {
    if (i === 0) return "split";
    if (i > 2 * width) return "merge";
    return i <= width ? `fetch_${i - 1}` : `parse_${i - 1 - width}`;
  });
  graph.handlers = ["python", "echo"];
  graph.handler = graph.nodes.map((_, i) => (i > 0 && i <= width ? 1 : 0));
  return graph;
}

/** @param {number} length */
export function chain(length) {
  const from = Array.from({ length: length - 1 }, (_, i) => i);
  return topology(length, from, from.map((i) => i + 1), (i) => `step_${i}`);
}

/** A graph drawn from a seed, with dependencies over several layers. @param {number} count @param {number} seed */
export function random(count, seed) {
  let state = seed;
  const next = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const from = [];
  const to = [];
  for (let i = 1; i < count; i++) {
    const parents = new Set(Array.from({ length: Math.floor(next() * 4) }, () => Math.floor(next() * i)));
    for (const parent of parents) {
      from.push(parent);
      to.push(i);
    }
  }
  const graph = topology(count, from, to, (i) => `n${i}`);
  graph.handlers = ["a", "b", "c"];
  graph.handler = graph.nodes.map(() => Math.floor(next() * 3));
  return graph;
}

/** @param {number} count @param {number[]} from @param {number[]} to @param {(i: number) => string} name */
export function topology(count, from, to, name) {
  const nodes = Array.from({ length: count }, (_, i) => name(i));
  return { version: "v", nodes, handlers: ["echo"], handler: new Array(count).fill(0), from, to };
}
