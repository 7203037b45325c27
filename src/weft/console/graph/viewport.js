// The camera of a view: moves at once or in a short flight, and shows the whole drawing until the user moves it.

import { between, fitting, kept, zoomed } from "./camera.js";

const READABLE = 0.8;
const FLIGHT_MS = 180;

/** @typedef {import("./camera.js").Camera} Camera */

export class Viewport {
  /**
   * @param {() => {width: number, height: number}} extent returns the size of the drawing
   * @param {() => void} changed
   */
  constructor(extent, changed) {
    this.extent = extent;
    this.changed = changed;
    /** @type {Camera} */
    this.camera = { x: 0, y: 0, scale: 1 };
    this.width = 0;
    this.height = 0;
    this.isFitted = true;
    this.flight = 0;
  }

  world() {
    return { x: 0, y: 0, ...this.extent() };
  }

  /** @param {number} width @param {number} height */
  resize(width, height) {
    const { x, y, scale } = this.camera;
    // What was in the middle stays there.
    const moved = { x: x + (width - this.width) / 2, y: y + (height - this.height) / 2, scale };
    this.width = width;
    this.height = height;
    if (this.isFitted) this.fit(false);
    else this.move(moved);
  }

  /** @param {Camera} camera */
  move(camera) {
    cancelAnimationFrame(this.flight);
    this.camera = kept(camera, this.world(), this.width, this.height);
    this.changed();
  }

  /** @param {Camera} target @param {boolean} smooth */
  fly(target, smooth) {
    const from = this.camera;
    if (!smooth || matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.move(target);
      return;
    }
    const begun = performance.now();
    const tick = (/** @type {number} */ now) => {
      const share = Math.min(1, Math.max(0, now - begun) / FLIGHT_MS);
      this.move(between(from, target, share, this.width, this.height));
      if (share < 1) this.flight = requestAnimationFrame(tick);
    };
    tick(begun);
  }

  /** @param {boolean} smooth */
  fit(smooth) {
    this.fly(fitting(this.world(), this.width, this.height), smooth);
    this.isFitted = true;
  }

  /** @param {number} factor @param {number} x @param {number} y */
  zoom(factor, x, y) {
    const least = fitting(this.world(), this.width, this.height).scale * 0.5;
    this.isFitted = false;
    this.move(zoomed(this.camera, factor, x, y, Math.min(least, this.camera.scale)));
  }

  /** @param {number} x @param {number} y */
  pan(x, y) {
    this.isFitted = false;
    this.move({ ...this.camera, x: this.camera.x + x, y: this.camera.y + y });
  }

  /** @param {number} x @param {number} y @param {number} scale @param {boolean} smooth */
  lookAt(x, y, scale, smooth) {
    this.isFitted = false;
    this.fly({ x: this.width / 2 - x * scale, y: this.height / 2 - y * scale, scale }, smooth);
  }

  /**
   * Bring a box of the world into view, large enough to be read where it was too small.
   * @param {[number, number, number, number]} box
   * @param {boolean} smooth
   */
  bring([x, y, w, h], smooth) {
    const { scale } = this.camera;
    const left = x * scale + this.camera.x;
    const top = y * scale + this.camera.y;
    const inside = left >= 0 && top >= 0 && left + w * scale <= this.width && top + h * scale <= this.height;
    if (inside && scale >= 0.4) this.changed();
    else this.lookAt(x + w / 2, y + h / 2, Math.max(READABLE, scale), smooth);
  }

  /** Return a point of the screen as a point of the world. @param {number} x @param {number} y @returns {[number, number]} */
  toWorld(x, y) {
    return [(x - this.camera.x) / this.camera.scale, (y - this.camera.y) / this.camera.scale];
  }

  /** Return a point of the world as a point of the screen. @param {number} x @param {number} y @returns {[number, number]} */
  toScreen(x, y) {
    return [x * this.camera.scale + this.camera.x, y * this.camera.scale + this.camera.y];
  }

  close() {
    cancelAnimationFrame(this.flight);
  }
}
