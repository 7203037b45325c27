// Colours, words and signs of the states, as a canvas needs them: colours are read from the page's CSS variables.

/** The order is that of the state codes. `text` is the sign where there is text; on a canvas it is drawn as a shape. */
export const STATES = [
  { name: "pending", word: "pending", text: "·", fallback: "#9aa3b2" },
  { name: "queued", word: "queued", text: "⋯", fallback: "#8b7cf6" },
  { name: "running", word: "running", text: "◐", fallback: "#3d8bfd" },
  { name: "completed", word: "completed", text: "✓", fallback: "#2fbf71" },
  { name: "failed", word: "failed", text: "✕", fallback: "#ef5350" },
  { name: "skipped", word: "skipped", text: "–", fallback: "#6b7794" },
  { name: "cancelled", word: "cancelled", text: "⊘", fallback: "#596173" },
  { name: "retry", word: "retry scheduled", text: "↻", fallback: "#f5a524" },
  { name: "waiting", word: "waiting", text: "☰", fallback: "#14b8a6" },
];
export const PENDING = 0;
export const QUEUED = 1;
export const RUNNING = 2;
export const COMPLETED = 3;
export const FAILED = 4;
export const SKIPPED = 5;
export const CANCELLED = 6;
export const RETRY = 7;
export const WAITING = 8;
export const STATE_COUNT = STATES.length;

/** What a reader looks for first comes first: in a bar of several states, and where they share a pixel. */
export const BY_WEIGHT = [FAILED, RETRY, WAITING, RUNNING, QUEUED, CANCELLED, SKIPPED, COMPLETED, PENDING];

/**
 * @typedef {{
 *   states: string[], inks: string[], words: string[], surface: string, raised: string, text: string, muted: string,
 *   line: string, strong: string, accent: string, font: string,
 * }} Palette
 */

/**
 * Return the colours that hold for an element now.
 * @param {HTMLElement} element
 * @returns {Palette}
 */
export function readPalette(element) {
  const style = getComputedStyle(element);
  const read = (/** @type {string[]} */ names, /** @type {string} */ fallback) => {
    for (const name of names) {
      const value = style.getPropertyValue(name).trim();
      if (value) return value;
    }
    return fallback;
  };
  const surface = read(["--surface"], "#ffffff");
  const dark = luminance(surface) < 0.4;
  const states = STATES.map(({ name, fallback }) => read([`--state-${name}`], fallback));
  const text = read(["--text"], dark ? "#e6e9ef" : "#1b1f27");
  return {
    ...{ states, surface, text, inks: states.map((fill) => (luminance(fill) > 0.36 ? "#0c1018" : "#ffffff")) },
    words: STATES.map(({ name }) => read([`--state-${name}-text`], text)),
    raised: read(["--surface-2"], dark ? "#1c2027" : "#f5f6f8"),
    muted: read(["--text-2", "--muted"], dark ? "#b4bbc8" : "#4b5362"),
    line: read(["--line", "--border"], dark ? "#30363f" : "#d9dce2"),
    strong: read(["--border-strong"], dark ? "#6f7888" : "#868e9c"),
    accent: read(["--accent"], "#2f5fd0"),
    font: style.fontFamily || "system-ui, sans-serif",
  };
}

/**
 * Call back when the theme may have changed; return what ends that.
 * @param {() => void} changed
 * @returns {() => void}
 */
export function watchTheme(changed) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributeFilter: ["class", "style", "data-theme"] });
  dark.addEventListener("change", changed);
  addEventListener("themechange", changed);
  return () => {
    observer.disconnect();
    dark.removeEventListener("change", changed);
    removeEventListener("themechange", changed);
  };
}

/** @type {CanvasRenderingContext2D | null} */
let probe = null;

/**
 * Return the relative luminance of a CSS colour, from 0 to 1.
 * @param {string} colour
 */
function luminance(colour) {
  probe ??= document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  if (probe === null) return 1;
  probe.canvas.width = probe.canvas.height = 1;
  probe.fillStyle = colour;
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  const linear = [red, green, blue].map((one) => {
    const share = one / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
