// What part of a drawing is seen: screen = world * scale + offset. Pure.

const LARGEST = 3;
const LARGEST_FIT = 1.15;
const MARGIN = 28;

/** @typedef {{x: number, y: number, scale: number}} Camera */
/** @typedef {{x: number, y: number, width: number, height: number}} Box */

/**
 * Return the camera that shows a whole box in the middle of a view.
 * @param {Box} box
 * @param {number} width
 * @param {number} height
 * @returns {Camera}
 */
export function fitting(box, width, height) {
  const margin = Math.min(MARGIN, width / 20, height / 20);
  const across = (width - 2 * margin) / Math.max(1, box.width);
  const down = (height - 2 * margin) / Math.max(1, box.height);
  const scale = Math.max(1e-4, Math.min(LARGEST_FIT, across, down));
  return {
    x: width / 2 - (box.x + box.width / 2) * scale,
    y: height / 2 - (box.y + box.height / 2) * scale,
    scale,
  };
}

/**
 * Return the camera after a zoom that leaves one point of the screen where it is.
 * @param {Camera} camera
 * @param {number} factor
 * @param {number} x
 * @param {number} y
 * @param {number} smallest
 * @returns {Camera}
 */
export function zoomed(camera, factor, x, y, smallest) {
  const scale = Math.min(LARGEST, Math.max(smallest, camera.scale * factor));
  const by = scale / camera.scale;
  return { x: x - (x - camera.x) * by, y: y - (y - camera.y) * by, scale };
}

/**
 * Return the camera moved so that something of the drawing stays in view.
 * @param {Camera} camera
 * @param {Box} world
 * @param {number} width
 * @param {number} height
 * @returns {Camera}
 */
export function kept(camera, world, width, height) {
  const rest = Math.min(80, width / 3, height / 3);
  const { scale } = camera;
  const x = Math.min(width - rest - world.x * scale, Math.max(rest - (world.x + world.width) * scale, camera.x));
  const y = Math.min(height - rest - world.y * scale, Math.max(rest - (world.y + world.height) * scale, camera.y));
  return { x, y, scale };
}

/**
 * Return the part of the world that is seen.
 * @param {Camera} camera
 * @param {number} width
 * @param {number} height
 * @returns {Box}
 */
export function seen(camera, width, height) {
  const { x, y, scale } = camera;
  return { x: -x / scale, y: -y / scale, width: width / scale, height: height / scale };
}

/**
 * Return a camera between two others, by a share from 0 to 1; the scale grows by factors.
 * @param {Camera} from
 * @param {Camera} to
 * @param {number} share
 * @param {number} width
 * @param {number} height
 * @returns {Camera}
 */
export function between(from, to, share, width, height) {
  const eased = share * (2 - share);
  const scale = from.scale * (to.scale / from.scale) ** eased;
  const center = (/** @type {Camera} */ one) => [(width / 2 - one.x) / one.scale, (height / 2 - one.y) / one.scale];
  const [fromX, fromY] = center(from);
  const [toX, toY] = center(to);
  const x = fromX + (toX - fromX) * eased;
  const y = fromY + (toY - fromY) * eased;
  return { x: width / 2 - x * scale, y: height / 2 - y * scale, scale };
}
