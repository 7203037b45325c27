/** Add a stylesheet to the page, once. @param {string} url */
export function useStyle(url) {
  const links = /** @type {HTMLLinkElement[]} */ ([...document.querySelectorAll('link[rel="stylesheet"]')]);
  if (links.some((link) => link.href === url)) return;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = url;
  document.head.append(link);
}
