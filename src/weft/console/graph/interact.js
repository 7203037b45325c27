// Pointer, wheel and keys on the canvas, as calls of what the view can do.

const CLICK_DISTANCE = 5;
const CLICK_MS = 600;
const STEP = 60;

/**
 * @typedef {{
 *   zoom(factor: number, x: number, y: number): void, pan(x: number, y: number): void,
 *   hover(x: number, y: number): void, leave(): void,
 *   press(x: number, y: number): void, pressTwice(x: number, y: number): void,
 *   step(direction: "left" | "right" | "up" | "down"): void, open(): void, clear(): boolean,
 *   fit(): void, nextFailure(step: 1 | -1): void, toggleAll(): void,
 * }} Actions
 */

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Actions} actions
 */
export function interact(canvas, actions) {
  /** @type {Map<number, {x: number, y: number}>} the pointers that are down */
  const down = new Map();
  let moved = 0;
  let downAt = 0;

  const place = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.x, y: event.clientY - box.y };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, place(event));
    moved = down.size > 1 ? Infinity : 0;
    downAt = event.timeStamp;
  });

  canvas.addEventListener("pointermove", (event) => {
    const here = place(event);
    const before = down.get(event.pointerId);
    if (before === undefined) {
      if (event.pointerType === "mouse") actions.hover(here.x, here.y);
      return;
    }
    const [x, y] = [here.x - before.x, here.y - before.y];
    moved += Math.abs(x) + Math.abs(y);
    const other = [...down].find(([id]) => id !== event.pointerId)?.[1];
    down.set(event.pointerId, here);
    if (other !== undefined) {
      const far = (/** @type {{x: number, y: number}} */ one) => Math.hypot(one.x - other.x, one.y - other.y);
      actions.zoom(far(here) / Math.max(1, far(before)), (here.x + other.x) / 2, (here.y + other.y) / 2);
      actions.pan(x / 2, y / 2);
    } else if (moved > CLICK_DISTANCE) {
      canvas.style.cursor = "grabbing";
      actions.pan(x, y);
    }
  });

  const up = (/** @type {PointerEvent} */ event) => {
    if (!down.delete(event.pointerId)) return;
    canvas.style.cursor = "";
    const { x, y } = place(event);
    if (event.type === "pointerup" && moved <= CLICK_DISTANCE && event.timeStamp - downAt < CLICK_MS) actions.press(x, y);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => actions.leave());
  canvas.addEventListener("dblclick", (event) => {
    const { x, y } = place(event);
    actions.pressTwice(x, y);
  });

  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
      if (event.shiftKey) {
        actions.pan(-(event.deltaX || event.deltaY) * unit, 0);
        return;
      }
      // A pinch on a touchpad comes as a wheel with ctrl, in small steps.
      const speed = event.ctrlKey ? 0.01 : 0.0016;
      const { x, y } = place(event);
      actions.zoom(Math.exp(-Math.max(-300, Math.min(300, event.deltaY * unit)) * speed), x, y);
    },
    { passive: false },
  );

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key(event, actions, canvas)) {
      event.preventDefault();
      // The shell has keys of its own; one press does one thing.
      event.stopPropagation();
    }
  });
}

/** @type {Record<string, "left" | "right" | "up" | "down">} */
const ARROWS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };
const PAN = { left: [STEP, 0], right: [-STEP, 0], up: [0, STEP], down: [0, -STEP] };

/**
 * Do what a key stands for; true if it stands for something.
 * @param {KeyboardEvent} event
 * @param {Actions} actions
 * @param {HTMLCanvasElement} canvas
 */
function key(event, actions, canvas) {
  const direction = ARROWS[event.key];
  const middle = [canvas.clientWidth / 2, canvas.clientHeight / 2];
  if (direction !== undefined) {
    if (event.shiftKey) actions.pan(PAN[direction][0], PAN[direction][1]);
    else actions.step(direction);
  } else if (event.key === "Enter") actions.open();
  else if (event.key === "n") actions.nextFailure(1);
  else if (event.key === "N") actions.nextFailure(-1);
  else if (event.key === "f") actions.fit();
  else if (event.key === "e") actions.toggleAll();
  else if (event.key === "+" || event.key === "=") actions.zoom(1.25, middle[0], middle[1]);
  else if (event.key === "-") actions.zoom(0.8, middle[0], middle[1]);
  else if (event.key === "Escape") return actions.clear();
  else return false;
  return true;
}
