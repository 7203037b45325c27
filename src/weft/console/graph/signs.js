// The sign of each state as a shape: the same in every font, and without colour.

import * as state from "./palette.js";

/** @type {((ctx: CanvasRenderingContext2D) => void)[]} */
const SHAPES = [];
SHAPES[state.PENDING] = (ctx) => {
  ctx.arc(0, 0, 0.22, 0, 2 * Math.PI);
};
SHAPES[state.QUEUED] = (ctx) => {
  for (const x of [-0.7, 0, 0.7]) {
    ctx.moveTo(x - 0.05, 0);
    ctx.lineTo(x + 0.05, 0);
  }
};
SHAPES[state.RUNNING] = (ctx) => {
  ctx.arc(0, 0, 0.78, 0, 2 * Math.PI);
};
SHAPES[state.COMPLETED] = (ctx) => {
  ctx.moveTo(-0.75, 0.05);
  ctx.lineTo(-0.2, 0.6);
  ctx.lineTo(0.8, -0.6);
};
SHAPES[state.FAILED] = (ctx) => {
  ctx.moveTo(-0.65, -0.65);
  ctx.lineTo(0.65, 0.65);
  ctx.moveTo(0.65, -0.65);
  ctx.lineTo(-0.65, 0.65);
};
SHAPES[state.SKIPPED] = (ctx) => {
  ctx.moveTo(-0.7, 0);
  ctx.lineTo(0.7, 0);
};
SHAPES[state.CANCELLED] = (ctx) => {
  ctx.arc(0, 0, 0.8, 0, 2 * Math.PI);
  ctx.moveTo(-0.56, 0.56);
  ctx.lineTo(0.56, -0.56);
};
SHAPES[state.RETRY] = (ctx) => {
  ctx.arc(0, 0, 0.75, 0.9, 5.7);
  ctx.moveTo(0.95, -0.95);
  ctx.lineTo(0.72, -0.3);
  ctx.lineTo(0.08, -0.42);
};
SHAPES[state.WAITING] = (ctx) => {
  for (const y of [-0.55, 0, 0.55]) {
    ctx.moveTo(-0.65, y);
    ctx.lineTo(0.65, y);
  }
};

/**
 * Draw the sign of a state around a point.
 * @param {CanvasRenderingContext2D} ctx
 * @param {number} code
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 * @param {string} ink
 */
export function drawSign(ctx, code, x, y, radius, ink) {
  const transform = ctx.getTransform();
  ctx.translate(x, y);
  ctx.scale(radius, radius);
  ctx.beginPath();
  SHAPES[code](ctx);
  ctx.lineWidth = 0.38;
  ctx.lineCap = "round";
  ctx.lineJoin = "round";
  ctx.strokeStyle = ink;
  ctx.stroke();
  if (code === state.RUNNING) {
    ctx.beginPath();
    ctx.arc(0, 0, 0.8, Math.PI / 2, (3 * Math.PI) / 2);
    ctx.fillStyle = ink;
    ctx.fill();
  }
  ctx.setTransform(transform);
}

/** @type {Map<string, HTMLCanvasElement>} */
const sprites = new Map();

/**
 * Return a picture of a sign for those who draw hundreds of it; `ink` and `pixels` as of now.
 * @param {number} code
 * @param {number} pixels
 * @param {string} ink
 */
export function signSprite(code, pixels, ink) {
  const key = `${code} ${pixels} ${ink}`;
  let sprite = sprites.get(key);
  if (sprite === undefined) {
    // Zooming asks for many sizes; the oldest are made again when they are needed again.
    if (sprites.size > 200) sprites.clear();
    sprite = document.createElement("canvas");
    sprite.width = sprite.height = pixels;
    const ctx = /** @type {CanvasRenderingContext2D} */ (sprite.getContext("2d"));
    drawSign(ctx, code, pixels / 2, pixels / 2, pixels * 0.4, ink);
    sprites.set(key, sprite);
  }
  return sprite;
}
