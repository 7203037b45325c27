// What the address of the list says, as parameters of the call; and saved views, which are addresses with a name.

/** Parameters that go to the server as they are. */
const PLAIN = ["workflow", "version", "batch", "q", "error", "node", "worker", "min_seconds", "max_seconds"];
const REPEATED = ["state", "label"];
const SPANS = /** @type {Record<string, number>} */ ({ "15m": 900, "1h": 3600, "24h": 86400, "7d": 604800, "30d": 2592000 });

export const SPAN_NAMES = /** @type {[string, string][]} */ ([
  ["15m", "last 15 minutes"], ["1h", "last hour"], ["24h", "last 24 hours"], ["7d", "last 7 days"], ["30d", "last 30 days"],
]);

/** Fields that are not in the row of filters unless they are used: name in the address, and label. */
export const MORE_FIELDS = /** @type {[string, string, string][]} */ ([
  ["error", "Error code", "such as http_status"],
  ["node", "Failed node", "id of a node"],
  ["worker", "Worker", "id of a worker"],
  ["min_seconds", "Took at least", "seconds"],
  ["max_seconds", "Took at most", "seconds"],
  ["version", "Version", "number"],
  ["batch", "Batch", "id of a batch"],
]);

/**
 * Return the parameters of `GET /v1/executions` for an address.
 * @param {URLSearchParams} query @param {number} now milliseconds
 * @returns {Record<string, string | string[]>}
 */
export function callQuery(query, now) {
  /** @type {Record<string, string | string[]>} */
  const made = {};
  for (const name of PLAIN) {
    const value = query.get(name);
    if (value) made[name] = value;
  }
  for (const name of REPEATED) {
    const values = query.getAll(name);
    if (values.length) made[name] = values;
  }
  const span = SPANS[query.get("since") ?? ""];
  // To the minute, so that the pages of one list have one beginning.
  if (span) made.created_after = new Date(Math.floor(now / 60000) * 60000 - span * 1000).toISOString();
  return made;
}

/**
 * Return the canonical text of an address's filters, to compare views.
 * @param {URLSearchParams} query
 */
export function viewText(query) {
  const kept = new URLSearchParams();
  for (const name of [...PLAIN, ...REPEATED, "since"].sort()) {
    for (const value of query.getAll(name).sort()) if (value) kept.append(name, value);
  }
  return kept.toString();
}

/** @typedef {{name: string, query: string}} View */

/** @type {View[]} */
export const OWN_VIEWS = [
  { name: "All", query: "" },
  { name: "Running", query: "state=PAUSED&state=PENDING&state=RUNNING" },
  { name: "Failed, 24 h", query: "since=24h&state=FAILED" },
];

const STORED = "weft.views";

/** @returns {View[]} */
export function savedViews() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORED) ?? "[]");
    return Array.isArray(stored) ? stored.filter((view) => typeof view?.name === "string" && typeof view?.query === "string") : [];
  } catch {
    return [];
  }
}

/** Keep views in this browser; false: it has no storage. @param {View[]} views */
export function saveViews(views) {
  try {
    localStorage.setItem(STORED, JSON.stringify(views.slice(0, 50)));
    return true;
  } catch {
    return false;
  }
}

/**
 * Put newer rows into a list: known ones are replaced where they are, new ones go to the front.
 * @template {{id: string}} T
 * @param {T[]} old newest first @param {T[]} fresh newest first
 * @returns {T[]}
 */
export function mergeRows(old, fresh) {
  const byId = new Map(fresh.map((row) => [row.id, row]));
  const known = new Set(old.map((row) => row.id));
  const added = fresh.filter((row) => !known.has(row.id));
  const kept = old.map((row) => byId.get(row.id) ?? row);
  if (!added.length) return kept;
  return [...added, ...kept].sort((a, b) => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0));
}
