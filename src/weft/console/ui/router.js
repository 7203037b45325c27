// The address is `#/path?query`. Everything that a page shows is in it, so that back, reload and a link work.

import { useEffect, useState } from "./preact.js";

/** @typedef {{path: string, query: URLSearchParams}} Place */

/**
 * Return the path and the query of an address's hash.
 * @param {string} hash
 * @returns {Place}
 */
export function parseHash(hash) {
  const text = hash.replace(/^#/, "");
  const mark = text.indexOf("?");
  const path = (mark < 0 ? text : text.slice(0, mark)) || "/";
  const clean = path.startsWith("/") ? path : `/${path}`;
  return {
    path: clean.length > 1 ? clean.replace(/\/+$/, "") || "/" : clean,
    query: new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1)),
  };
}

/**
 * Return the link to a path. Parts of `path` that come from users must be encoded: use `to`.
 * @param {string} path
 * @param {Record<string, any> | URLSearchParams} [query] null, undefined and "" are left out; a list repeats
 */
export function href(path, query) {
  const text = queryText(query);
  return `#${path}${text ? `?${text}` : ""}`;
}

/**
 * Return a path of parts, each encoded: ``to("executions", id)``.
 * @param {...string} parts
 */
export function to(...parts) {
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

/** @param {Record<string, any> | URLSearchParams} [query] */
export function queryText(query) {
  if (!query) return "";
  if (query instanceof URLSearchParams) return query.toString();
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") made.append(name, String(one));
    }
  }
  return made.toString();
}

/**
 * Match a path with a pattern such as `/executions/:id`; null: it is another.
 * @param {string} pattern
 * @param {string} path
 * @returns {Record<string, string> | null}
 */
export function match(pattern, path) {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  /** @type {Record<string, string>} */
  const params = {};
  for (let i = 0; i < wanted.length; i++) {
    if (wanted[i].startsWith(":")) {
      try {
        params[wanted[i].slice(1)] = decodeURIComponent(given[i]);
      } catch {
        return null;
      }
    } else if (wanted[i] !== given[i]) return null;
  }
  return params;
}

/** @returns {Place} */
export function place() {
  return parseHash(location.hash);
}

/**
 * Go to a path. With `replace` the step back leads past the present place.
 * @param {string} path
 * @param {Record<string, any> | URLSearchParams} [query]
 * @param {{replace?: boolean}} [options]
 */
export function navigate(path, query, { replace = false } = {}) {
  const hash = href(path, query);
  if (hash === location.hash) return;
  if (replace) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = hash;
}

/**
 * Change parts of the query and stay on the page; null or "" takes a part away.
 * @param {Record<string, any>} changes
 * @param {{replace?: boolean}} [options]
 */
export function setQuery(changes, { replace = false } = {}) {
  const { path, query } = place();
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, String(one));
    }
  }
  navigate(path, query, { replace });
}

/** Return the present place, and draw again when it changes. */
export function usePlace() {
  const [now, setNow] = useState(place);
  useEffect(() => {
    const changed = () => setNow(place());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return now;
}
