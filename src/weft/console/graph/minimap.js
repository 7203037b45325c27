// The whole drawing in a corner, with a frame around what is seen; a drag in it moves the view.

import { BY_WEIGHT, STATE_COUNT } from "./palette.js";
import { STAGE } from "./scene.js";
import { visitNodes } from "./hit.js";
import { seen } from "./camera.js";

const WIDTH = 168;
const HEIGHT = 104;
const PERIOD_MS = 250;

/** @typedef {import("./draw.js").Frame} Frame */

export class Minimap {
  /** @param {(x: number, y: number) => void} look called with the point of the world to look at */
  constructor(look) {
    this.canvas = document.createElement("canvas");
    this.canvas.className = "weft-graph-minimap";
    this.canvas.setAttribute("aria-hidden", "true");
    this.picture = document.createElement("canvas");
    this.scale = 1;
    this.paintedAt = -Infinity;
    /** @type {object | null} */
    this.painted = null;
    const move = (/** @type {PointerEvent} */ event) => {
      if (event.buttons === 0) return;
      const box = this.canvas.getBoundingClientRect();
      look((event.clientX - box.x - this.left) / this.scale, (event.clientY - box.y - this.top) / this.scale);
    };
    this.left = 0;
    this.top = 0;
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      move(event);
    });
    this.canvas.addEventListener("pointermove", move);
  }

  /**
   * Draw it, unless all of the drawing is in view or the view is too small for it. States are drawn some times a
   * second; the frame at once.
   * @param {Frame} frame
   * @param {HTMLCanvasElement | null} heat the picture of all boxes, where there is one
   * @param {number} now
   */
  draw(frame, heat, now) {
    const { board, camera, palette, width, height, ratio } = frame;
    const { scene } = board;
    if (scene === null) return;
    const box = seen(camera, width, height);
    const whole = box.x <= 0 && box.y <= 0 && box.x + box.width >= scene.width && box.y + box.height >= scene.height;
    this.canvas.hidden = whole || width < 560 || height < 300;
    if (this.canvas.hidden) return;
    this.scale = Math.min((WIDTH - 8) / Math.max(1, scene.width), (HEIGHT - 8) / Math.max(1, scene.height));
    this.left = (WIDTH - scene.width * this.scale) / 2;
    this.top = (HEIGHT - scene.height * this.scale) / 2;
    if (this.painted !== scene || now - this.paintedAt > PERIOD_MS) {
      this.paint(frame, heat);
      this.painted = scene;
      this.paintedAt = now;
    }
    size(this.canvas, ratio);
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, WIDTH, HEIGHT);
    ctx.drawImage(this.picture, 0, 0, WIDTH, HEIGHT);
    const x = Math.max(1, this.left + box.x * this.scale);
    const y = Math.max(1, this.top + box.y * this.scale);
    const right = Math.min(WIDTH - 1, this.left + (box.x + box.width) * this.scale);
    const bottom = Math.min(HEIGHT - 1, this.top + (box.y + box.height) * this.scale);
    ctx.strokeStyle = palette.accent;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(x, y, Math.max(3, right - x), Math.max(3, bottom - y));
  }

  /** @param {Frame} frame @param {HTMLCanvasElement | null} heat */
  paint({ board, palette, ratio }, heat) {
    const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
    size(this.picture, ratio);
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.picture.getContext("2d"));
    ctx.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, ratio * this.left, ratio * this.top);
    ctx.clearRect(-1e6, -1e6, 2e6, 2e6);
    const least = 1.4 / this.scale;
    const everything = { x: -1e9, y: -1e9, width: 2e9, height: 2e9 };
    if (heat !== null) ctx.drawImage(heat, 0, 0, scene.width, scene.height);
    for (let item = 0; item < scene.items; item++) {
      if (scene.kind[item] !== STAGE) {
        if (heat !== null) continue;
        visitNodes(scene, item, everything, (node, x, y) => {
          ctx.fillStyle = palette.states[board.states[node]];
          ctx.fillRect(x, y, Math.max(scene.cardWidth, least), Math.max(scene.cardHeight, least));
        });
        continue;
      }
      this.share(ctx, board.itemCounts.subarray(item * STATE_COUNT, (item + 1) * STATE_COUNT), palette.states, [
        ...[scene.x[item], scene.y[item], scene.w[item], Math.max(scene.h[item], least)],
      ]);
    }
  }

  /**
   * Fill a box with the states of its nodes, side by side.
   * @param {CanvasRenderingContext2D} ctx
   * @param {Uint32Array} counts
   * @param {string[]} colours
   * @param {number[]} box
   */
  share(ctx, counts, colours, [x, y, w, h]) {
    const total = counts.reduce((sum, one) => sum + one, 0);
    let left = x;
    for (const state of BY_WEIGHT) {
      const wide = (counts[state] / Math.max(1, total)) * w;
      ctx.fillStyle = colours[state];
      ctx.fillRect(left, y, wide, h);
      left += wide;
    }
  }
}

/** @param {HTMLCanvasElement} canvas @param {number} ratio */
function size(canvas, ratio) {
  const width = Math.round(WIDTH * ratio);
  const height = Math.round(HEIGHT * ratio);
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
}
