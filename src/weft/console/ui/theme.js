// Dark or light: what the system says, unless the user chose. `data-theme` of the root is always one of the two,
// and the window has an event `themechange` for canvases.

const NAME = "weft.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** @returns {"light" | "dark" | "system"} */
export function chosenTheme() {
  try {
    const stored = localStorage.getItem(NAME);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    return "system";
  }
}

/** @param {"light" | "dark" | "system"} choice */
export function chooseTheme(choice) {
  try {
    if (choice === "system") localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, choice);
  } catch {
    // Without storage the choice holds until the page is left.
  }
  apply(choice);
}

/** @returns {"light" | "dark"} */
export function shownTheme() {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

/** Go from dark to light and back; the system's own theme is stored as no choice. */
export function toggleTheme() {
  const next = shownTheme() === "dark" ? "light" : "dark";
  chooseTheme((next === "dark") === dark.matches ? "system" : next);
}

/** @param {"light" | "dark" | "system"} choice */
function apply(choice) {
  const shown = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
  if (shown === shownTheme()) return;
  document.documentElement.dataset.theme = shown;
  dispatchEvent(new CustomEvent("themechange", { detail: shown }));
}

dark.addEventListener("change", () => apply(chosenTheme()));
addEventListener("storage", (event) => {
  if (event.key === NAME) apply(chosenTheme());
});
