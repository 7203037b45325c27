// The graph alone on a page: mounts it for an execution, and measures what a user would feel. Run by measure.py.

const { files, execution } = /** @type {any} */ (window).bench;
const { mountGraph } = await import(`${files}graph/view.js`);
const topology = await (await fetch(`/v1/executions/${execution}/topology`)).json();
const count = topology.nodes.length;
// As of an execution halfway: done, a front of running and queued nodes, and the rest.
const states = Uint8Array.from(topology.nodes, (_, i) => {
  if (i < count * 0.55) return i % 100 === 7 ? 4 : 3;
  return i < count * 0.6 ? 1 + (i % 2) : 0;
});
const graph = mountGraph(document.getElementById("graph"), { topology, states });
await graph.ready;
await nextFrame();

const bench = /** @type {any} */ (window).bench;
bench.interactive = performance.now();
bench.expandAll = async () => {
  const begun = performance.now();
  await graph.expandAll(true);
  await nextFrame();
  return performance.now() - begun;
};
// A sixth of a second away from the pointer's last place, so that what is under it is never kept.
bench.zoom = (seconds) => measured(seconds, 16, (step) => {
  const canvas = document.querySelector(".weft-graph-stage > canvas");
  const box = canvas.getBoundingClientRect();
  const at = { clientX: box.x + box.width * 0.4, clientY: box.y + box.height * 0.6 };
  const deltaY = step % 60 < 30 ? -100 : 100;
  canvas.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY, bubbles: true, cancelable: true }));
});
// The stream brings ten frames a second at most.
bench.change = (seconds, rate) => measured(seconds, 100, (step) => {
  const many = rate / 10;
  const changes = Array.from({ length: many }, (_, i) => {
    const place = step * many + i;
    return [(place * 7919) % count, 1 + (place % 4)];
  });
  graph.patch(changes);
});
bench.ready = true;

function nextFrame() {
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}

/** Do something every few milliseconds; return the frames a second meanwhile, and the longest in milliseconds. */
async function measured(seconds, period, act) {
  await nextFrame();
  const begun = performance.now();
  let frames = 0;
  let longest = 0;
  let before = begun;
  let step = 0;
  const timer = setInterval(() => act(step++), period);
  while (before - begun < seconds * 1000) {
    const now = await new Promise((resolve) => requestAnimationFrame(() => resolve(performance.now())));
    longest = Math.max(longest, now - before);
    before = now;
    frames++;
  }
  clearInterval(timer);
  return { frames, fps: (frames * 1000) / (before - begun), longest };
}
