// Sets the theme before the first paint; a module would come too late, and a dark page would flash white.
// `ui/theme.js` changes it afterwards.
(function () {
  let stored = null;
  try {
    stored = localStorage.getItem("weft.theme");
  } catch {
    // Storage may be forbidden; the system's theme is used then.
  }
  const dark = stored === "dark" || (stored !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
