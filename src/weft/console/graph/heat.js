// One picture of all boxes for the view from afar. A frame copies it; a change of state repaints one box of it.

import { visitItems, visitNodes } from "./hit.js";
import { GRID, STAGE, nodeBox } from "./scene.js";

// Below so many boxes a frame draws them one by one in time.
const FROM_NODES = 3000;
const MOST_PIXELS = 4_000_000;
const LARGEST_SCALE = 0.25;
// A little beyond its own size the picture is still sharper than nothing in time.
const LARGEST_ZOOM = 1.6;
const DIM = 0.25;

/** @typedef {import("./draw.js").Frame} Frame */

export class Heat {
  constructor() {
    /** @type {HTMLCanvasElement | null} */
    this.picture = null;
    /** @type {import("./scene.js").Scene | null} the scene that the picture shows */
    this.scene = null;
    this.scale = 0;
    this.palette = "";
  }

  /**
   * True if the picture is sharp enough for a frame of so many nodes.
   * @param {Frame} frame
   * @param {number} visible
   */
  covers({ board, camera, ratio }, visible) {
    const { scene } = board;
    if (scene === null || visible < FROM_NODES) return false;
    return camera.scale * ratio <= scaleOf(scene) * LARGEST_ZOOM;
  }

  /** Bring the picture up to date, also for frames that show something else; return it, or null for a small graph. @param {Frame} frame */
  update(frame) {
    const { board } = frame;
    const { scene } = board;
    if (scene === null || board.count < FROM_NODES || !shows(scene)) return null;
    const palette = frame.palette.states.join();
    if (this.picture === null || this.scene !== scene || this.palette !== palette) {
      this.scene = scene;
      this.palette = palette;
      this.repaint(frame);
    } else this.touch(frame, board.changed.subarray(0, board.changedCount));
    return this.picture;
  }

  /** Copy the picture into a frame. @param {Frame} frame */
  paint({ ctx, board, camera }) {
    if (this.picture === null) return;
    const { scale } = camera;
    const dim = board.reach !== null || board.matches !== null;
    ctx.globalAlpha = dim ? DIM : 1;
    const by = scale / this.scale;
    ctx.imageSmoothingEnabled = by < 1;
    ctx.imageSmoothingQuality = "low";
    ctx.drawImage(this.picture, camera.x, camera.y, this.picture.width * by, this.picture.height * by);
    ctx.globalAlpha = 1;
  }

  /** @param {Frame} frame */
  repaint(frame) {
    const { board } = frame;
    const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
    this.scale = scaleOf(scene);
    this.picture ??= document.createElement("canvas");
    this.picture.width = Math.max(1, Math.ceil(scene.width * this.scale));
    this.picture.height = Math.max(1, Math.ceil(scene.height * this.scale));
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.picture.getContext("2d"));
    const everything = { x: -1e9, y: -1e9, width: 2e9, height: 2e9 };
    visitItems(scene, everything, (item) => {
      visitNodes(scene, item, everything, (node, x, y) => {
        this.fill(ctx, frame.palette.states[board.states[node]], x, y, scene);
      });
    });
  }

  /** @param {Frame} frame @param {Int32Array} nodes */
  touch(frame, nodes) {
    const { board } = frame;
    const scene = /** @type {import("./scene.js").Scene} */ (board.scene);
    const ctx = this.picture?.getContext("2d");
    if (!ctx) return;
    for (const node of nodes) {
      if (scene.kind[scene.item[node]] === STAGE) continue;
      const [x, y] = nodeBox(scene, node);
      this.fill(ctx, frame.palette.states[board.states[node]], x, y, scene);
    }
  }

  /**
   * Fill the whole pixels of a cell: a box that is painted again leaves nothing of its old colour at its edges. There
   * is no gap between rows, which would be a pattern of its own in a picture this small, and one pixel between columns.
   * @param {CanvasRenderingContext2D} ctx
   * @param {string} colour
   * @param {number} x
   * @param {number} y
   * @param {import("./scene.js").Scene} scene
   */
  fill(ctx, colour, x, y, { cellWidth, cellHeight }) {
    const left = Math.round(x * this.scale);
    const top = Math.round(y * this.scale);
    const right = Math.max(left + 1, Math.round((x + cellWidth) * this.scale) - 1);
    const bottom = Math.max(top + 1, Math.round((y + cellHeight) * this.scale));
    ctx.fillStyle = colour;
    ctx.fillRect(left, top, right - left, bottom - top);
  }
}

/** True if a scene shows nodes beside collapsed stages. @param {import("./scene.js").Scene} scene */
function shows(scene) {
  return !scene.staged || scene.kind.includes(GRID);
}

/** @param {import("./scene.js").Scene} scene */
function scaleOf(scene) {
  const pixels = Math.max(1, scene.width) * Math.max(1, scene.height);
  return Math.min(LARGEST_SCALE, Math.sqrt(MOST_PIXELS / pixels));
}
