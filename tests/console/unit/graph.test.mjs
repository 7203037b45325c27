import assert from "node:assert/strict";
import { test } from "node:test";

import { Board } from "../../../src/weft/console/graph/board.js";
import { fitting, kept, zoomed } from "../../../src/weft/console/graph/camera.js";
import { barWidths } from "../../../src/weft/console/graph/cards.js";
import { countNodes, hitAt, nextItem, nextNode, visitItems, visitNodes } from "../../../src/weft/console/graph/hit.js";
import { GRID, NODE, STAGE, modelOf, nodeBox, sceneOf } from "../../../src/weft/console/graph/scene.js";
import { graphOf, layersOf, reachOf } from "../../../src/weft/console/graph/topology.js";
import { chain, fan, layered, random, topology } from "./graphs.mjs";

const FAILED = 4;
const COMPLETED = 3;
const EVERYTHING = { x: -1e9, y: -1e9, width: 2e9, height: 2e9 };

function drawn(graph, all = true) {
  const model = modelOf(graph.nodes.length, graph.from, graph.to, graph.handler, 180);
  const expanded = new Uint8Array(model.stages.count).fill(all ? 1 : 0);
  return { model, scene: sceneOf(model, expanded) };
}

const GRAPHS = {
  "no node": topology(0, [], [], String),
  "one node": topology(1, [], [], String),
  "nodes without dependencies": topology(40, [], [], String),
  "a chain": chain(100),
  "a long chain": chain(3000),
  "a fan": fan(100),
  "a wide fan": fan(2500),
  "layers": layered(50, 20),
  "many layers": layered(50, 200),
  "a small random graph": random(60, 3),
  "a random graph": random(1500, 5),
  "a large random graph": random(6000, 7),
};

for (const [name, graph] of Object.entries(GRAPHS)) {
  test(`every node of ${name} is drawn once`, () => {
    const { scene } = drawn(graph);
    const seen = new Set();
    visitItems(scene, EVERYTHING, (item) => visitNodes(scene, item, EVERYTHING, (node) => {
      assert.ok(!seen.has(node));
      seen.add(node);
    }));
    assert.equal(seen.size, graph.nodes.length);
  });

  test(`no two items of ${name} overlap`, () => {
    const { scene } = drawn(graph);
    for (let column = 0; column + 1 < scene.columnStart.length; column++) {
      for (let at = scene.columnStart[column] + 1; at < scene.columnStart[column + 1]; at++) {
        const [above, below] = [scene.inColumn[at - 1], scene.inColumn[at]];
        assert.ok(scene.y[above] + scene.h[above] <= scene.y[below] + 0.5);
      }
    }
    for (let item = 0; item < scene.items; item++) {
      assert.ok(scene.x[item] >= 0 && scene.x[item] + scene.w[item] <= scene.width + 0.5);
      assert.ok(scene.y[item] >= -0.5 && scene.y[item] + scene.h[item] <= scene.height + 0.5);
    }
  });

  test(`a dependency of ${name} leads to a later layer`, () => {
    const { model } = drawn(graph);
    for (let i = 0; i < graph.from.length; i++) assert.ok(model.layer[graph.from[i]] < model.layer[graph.to[i]]);
  });

  test(`a dependency of ${name} leads to the right, or into a lower band`, () => {
    const { scene } = drawn(graph);
    for (let i = 0; i < scene.from.length; i++) {
      const [from, to] = [scene.from[i], scene.to[i]];
      const right = scene.x[from] + scene.w[from] <= scene.x[to];
      assert.ok(right || scene.y[to] > scene.y[from] + scene.h[from]);
    }
  });

  test(`${name} is drawn the same each time`, () => {
    assert.deepEqual(drawn(graph).scene, drawn(graph).scene);
  });
}

test("a layout costs at most so many operations for each node and dependency", () => {
  for (const graph of [layered(100, 500), fan(25_000), random(50_000, 11)]) {
    for (const all of [true, false]) {
      const { scene } = drawn(graph, all);
      const size = graph.nodes.length + graph.from.length;
      assert.ok(scene.operations <= 60 * size, `${scene.operations / size} for each`);
    }
  }
});

test("a long chain is folded into bands of about the same width", () => {
  const { scene } = drawn(chain(100));
  assert.ok(scene.bandStart.length > 3);
  const ratio = scene.width / scene.height;
  assert.ok(ratio > 0.8 && ratio < 3.5, `${ratio}`);
});

test("a wide layer is wrapped, and the drawing has about the shape of a page", () => {
  for (const graph of [fan(100), fan(1000), fan(5000)]) {
    const { scene } = drawn(graph);
    const ratio = scene.width / scene.height;
    assert.ok(ratio > 0.7 && ratio < 3.5, `${ratio}`);
  }
});

test("the long dependencies of one node share their way", () => {
  // 0 → 1 → 2 → 3 → 4, and 0 → 3, 0 → 4.
  const graph = topology(5, [0, 1, 2, 3, 0, 0], [1, 2, 3, 4, 3, 4], String);
  const { scene } = drawn(graph);
  const bends = (link) => Array.from(scene.bendY.subarray(scene.bendStart[link], scene.bendStart[link + 1]));
  assert.equal(bends(4).length, 4);
  assert.deepEqual(bends(5).slice(0, 4), bends(4));
});

test("a large graph opens by stage: a layer and a handler", () => {
  const { model, scene } = drawn(fan(5000), false);
  assert.ok(model.staged);
  assert.equal(scene.items, 4);
  assert.deepEqual(Array.from(scene.kind), [NODE, STAGE, STAGE, NODE]);
  const sizes = Array.from(scene.kind, (_, item) => scene.start[item + 1] - scene.start[item]);
  assert.deepEqual(sizes, [1, 5000, 5000, 1]);
});

test("one stage is expanded into a wrapped grid, the others stay", () => {
  const graph = fan(5000);
  const model = modelOf(graph.nodes.length, graph.from, graph.to, graph.handler, 180);
  const scene = sceneOf(model, Uint8Array.of(0, 1, 0, 0));
  assert.deepEqual(Array.from(scene.kind), [NODE, GRID, STAGE, NODE]);
  assert.ok(scene.columns[1] > 1);
});

test("a large graph with a stage for each node opens with its nodes", () => {
  assert.equal(drawn(chain(5000)).model.staged, false);
});

test("a root is moved beside the first of its children", () => {
  // 0 → 1 → 2 → 3, and 4 → 3.
  const graph = graphOf(5, [0, 1, 2, 4], [1, 2, 3, 3]);
  assert.deepEqual(Array.from(layersOf(graph, true).layer), [0, 1, 2, 3, 2]);
  assert.deepEqual(Array.from(layersOf(graph, false).layer), [0, 1, 2, 3, 0]);
});

for (const [name, graph] of Object.entries({ fan: fan(2500), random: random(900, 5), chain: chain(200) })) {
  test(`a point on the card of each node of a ${name} hits that node, and a gap none`, () => {
    const { scene } = drawn(graph);
    for (let node = 0; node < graph.nodes.length; node++) {
      const [x, y, w, h] = nodeBox(scene, node);
      for (const [dx, dy] of [[1, 1], [w / 2, h / 2], [w - 1, h - 1]]) {
        assert.equal(hitAt(scene, x + dx, y + dy)?.node, node);
      }
      assert.notEqual(hitAt(scene, x + w + 2, y + h / 2)?.node, node);
    }
    assert.equal(hitAt(scene, -50, -50), null);
  });
}

test("a point on a collapsed stage hits the stage and no node", () => {
  const { scene } = drawn(fan(5000), false);
  assert.deepEqual(hitAt(scene, scene.x[1] + 5, scene.y[1] + 5), { item: 1, node: -1 });
});

test("what is seen is found without a look at the rest", () => {
  const { scene } = drawn(layered(50, 200));
  const [x, y] = nodeBox(scene, 5000);
  const box = { x, y, width: 3 * scene.cellWidth, height: 5 * scene.cellHeight };
  const seen = [];
  visitItems(scene, box, (item) => visitNodes(scene, item, box, (node) => seen.push(node)));
  assert.ok(seen.includes(5000));
  assert.ok(seen.length < 40, `${seen.length}`);
  assert.ok(countNodes(scene, box, 1e9) >= seen.length - 6);
  assert.ok(countNodes(scene, EVERYTHING, 1e9) >= 10_000);
});

test("arrow keys follow dependencies and neighbours", () => {
  const graph = topology(4, [0, 0, 1, 2], [1, 2, 3, 3], String);
  const { model, scene } = drawn(graph);
  const upper = scene.y[1] < scene.y[2] ? 1 : 2;
  const lower = 3 - upper;
  assert.equal(nextNode(scene, model.graph, upper, "down"), lower);
  assert.equal(nextNode(scene, model.graph, lower, "up"), upper);
  assert.equal(nextNode(scene, model.graph, upper, "right"), 3);
  assert.equal(nextNode(scene, model.graph, upper, "left"), 0);
  assert.equal(nextNode(scene, model.graph, 0, "left"), -1);
});

test("arrow keys walk over collapsed stages", () => {
  const { scene } = drawn(fan(5000), false);
  assert.equal(nextItem(scene, 0, "right"), 1);
  assert.equal(nextItem(scene, 2, "left"), 1);
  assert.equal(nextItem(scene, 3, "right"), -1);
});

test("ancestors and descendants are followed to the end, and nothing else is marked", () => {
  // 0 → 1 → 2, 3 → 2, 4 alone.
  const graph = graphOf(5, [0, 1, 3], [1, 2, 2]);
  assert.deepEqual(Array.from(reachOf(graph, [1])), [2, 1, 3, 0, 0]);
});

test("a change of a state is counted for its item, and a scene is not made anew", () => {
  const graph = fan(5000);
  const board = new Board(graph);
  const { model, scene } = drawn(graph, false);
  board.graph = model.graph;
  board.setScene(scene);
  board.setStates(new Uint8Array(graph.nodes.length).fill(COMPLETED));
  assert.equal(board.takeChanges().length, graph.nodes.length);
  board.setState(7, FAILED);
  board.setState(7, FAILED);
  board.setState(7, COMPLETED);
  board.setState(8, FAILED);
  assert.deepEqual(Array.from(board.takeChanges()), [7, 8]);
  assert.equal(board.counts[FAILED], 1);
  assert.equal(board.itemCounts[9 + FAILED], 1);
  assert.equal(board.itemCounts[9 + COMPLETED], 4999);
  assert.deepEqual(Array.from(board.failedNodes()), [8]);
  assert.equal(board.scene, scene);
});

test("a state or an index that is not known changes nothing", () => {
  const board = new Board(chain(3));
  board.setState(1, 200);
  board.setState(99, 3);
  board.setState(-1, 3);
  assert.equal(board.takeChanges().length, 0);
  assert.equal(board.counts[0], 3);
});

test("a stage is named after what its ids begin with", () => {
  const board = new Board(fan(5000));
  board.setScene(drawn(fan(5000), false).scene);
  assert.deepEqual(board.itemNames, ["split", "fetch_…", "parse_…", "merge"]);
});

test("a search finds parts of ids, and whole names of handlers", () => {
  const board = new Board(fan(10));
  assert.equal(board.search("FETCH_").length, 10);
  assert.equal(board.search("echo").length, 10);
  assert.equal(board.search("  ").length, 0);
  assert.equal(board.matches, null);
});

test("every state that occurs has a part of the bar, and the parts fill it", () => {
  const widths = barWidths([0, 1, 2, 9996, 1, 0], 200, 4);
  assert.ok(widths[1] >= 4 && widths[2] >= 4 && widths[4] >= 4);
  assert.ok(Math.abs(widths.reduce((sum, one) => sum + one, 0) - 200) < 1e-6);
  assert.equal(barWidths([0, 0], 200, 4)[0], 0);
});

test("a zoom leaves the point under the pointer where it is", () => {
  const after = zoomed({ x: 10, y: 20, scale: 0.5 }, 1.3, 300, 200, 0.01);
  assert.ok(Math.abs((300 - after.x) / after.scale - (300 - 10) / 0.5) < 1e-9);
  assert.ok(Math.abs((200 - after.y) / after.scale - (200 - 20) / 0.5) < 1e-9);
});

test("a drawing fits into the view, and cannot be lost out of it", () => {
  const world = { x: 0, y: 0, width: 4000, height: 1000 };
  const camera = fitting(world, 800, 600);
  assert.ok(camera.x >= 0 && camera.x + 4000 * camera.scale <= 800);
  const lost = kept({ x: 9e6, y: -9e6, scale: 1 }, world, 800, 600);
  assert.ok(lost.x < 800 && lost.y > -1000);
});
