/** Add a stylesheet to the page, once; resolves when it holds. @param {string} url @returns {Promise<unknown>} */
export function useStyle(url) {
  const links = /** @type {HTMLLinkElement[]} */ ([...document.querySelectorAll('link[rel="stylesheet"]')]);
  if (links.some((link) => link.href === url && link.sheet)) return Promise.resolve();
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = url;
  document.head.append(link);
  return new Promise((resolve) => (link.onload = link.onerror = resolve));
}
