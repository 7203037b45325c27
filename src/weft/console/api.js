// Every call of the console, one function each; what they answer is in docs/rest.md. A refused call throws a
// `Problem`. Where the server has keys the browser sends its session cookie, and calls that change something also
// send the session's CSRF token. No key is ever stored here.

/** @typedef {import("./types").Execution} Execution */
/** @typedef {import("./types").Session} Session */
/** @template T @typedef {import("./types").Page<T>} Page */

// This file is ROOT/console/VERSION/api.js; ROOT may be a path behind a proxy.
export const ROOT = new URL("../../", import.meta.url).href;

/** @type {Session} */
let session = { keys: false, signed_in: true, csrf: null, name: null };
/** @type {Set<() => void>} */
const onSignedOut = new Set();

/** What the server refused, or that it did not answer (status 0). */
export class Problem extends Error {
  /** @param {{status: number, code: string, title: string, detail: string, problems?: {pointer: string, message: string}[],
   *   trace_id?: string, retryAfter?: number | null, state?: string}} facts */
  constructor(facts) {
    super(facts.detail || facts.title);
    this.name = "Problem";
    this.status = facts.status;
    this.code = facts.code;
    this.title = facts.title;
    this.detail = facts.detail;
    this.problems = facts.problems ?? [];
    this.traceId = facts.trace_id ?? "";
    this.retryAfter = facts.retryAfter ?? null;
    this.state = facts.state ?? "";
  }

  /** True if the server does not know the call, or what it names. */
  get isMissing() {
    return this.status === 404 || this.status === 405;
  }

  /** True if the server could not be reached. */
  get isOffline() {
    return this.status === 0;
  }
}

/**
 * Send a call and return its JSON; null: the answer has no body.
 * @param {string} method
 * @param {string} path with its parts encoded
 * @param {{query?: Record<string, any>, body?: any, signal?: AbortSignal, once?: boolean}} [options] `once`: sent
 *   with a key of its own, so that a repetition by the network starts nothing twice
 * @returns {Promise<any>}
 */
export async function call(method, path, { query, body, signal, once = false } = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (once) headers["Idempotency-Key"] = randomId();
  if (method !== "GET" && session.csrf) headers["X-CSRF-Token"] = session.csrf;
  const response = await send(path, query, {
    method,
    headers,
    signal,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/**
 * Send a request and return the response; a refusal throws a `Problem`.
 * @param {string} path
 * @param {Record<string, any> | undefined} query
 * @param {RequestInit} init
 */
export async function send(path, query, init) {
  let response;
  try {
    response = await fetch(addressOf(path, query), { ...init, credentials: "same-origin" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    const detail = "The server does not answer. The console tries again by itself.";
    throw new Problem({ status: 0, code: "offline", title: "Server not reached", detail });
  }
  noteClock(response.headers.get("Date"));
  if (!response.ok) {
    const problem = await readProblem(response);
    if (problem.status === 401) for (const listener of onSignedOut) listener();
    throw problem;
  }
  return response;
}

let offsetMs = 0;

/** Return how far the server's clock is ahead of this machine's; small differences are none. */
export function clockOffsetMs() {
  return offsetMs;
}

/** @param {string | null} date of a response, in whole seconds */
function noteClock(date) {
  const ahead = date ? Date.parse(date) + 500 - Date.now() : 0;
  offsetMs = Math.abs(ahead) > 3000 ? ahead : 0;
}

/** @param {string} path @param {Record<string, any>} [query] */
export function addressOf(path, query) {
  const url = new URL(path.replace(/^\//, ""), ROOT);
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") url.searchParams.append(name, String(one));
    }
  }
  return url.href;
}

/** @param {Response} response */
async function readProblem(response) {
  /** @type {any} */
  let told = {};
  try {
    told = await response.json();
  } catch {
    // A proxy in between may answer with a page of its own.
  }
  const after = Number(response.headers.get("Retry-After"));
  const title = told.title || response.statusText || `HTTP ${response.status}`;
  return new Problem({
    ...told,
    status: response.status,
    code: told.code || "unknown",
    title,
    detail: told.detail || title,
    retryAfter: Number.isFinite(after) && after > 0 ? after : null,
  });
}

/** `crypto.randomUUID` is there in secure contexts alone; a server may be used over plain HTTP. */
function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {...string} parts */
const v1 = (...parts) => `/v1/${parts.map(encodeURIComponent).join("/")}`;
/** @typedef {Record<string, any>} Query */
/** @typedef {AbortSignal | undefined} Signal */

// --- The session.

export function sessionNow() {
  return session;
}

/** Call `listener` when the server wants a key; returns how to stop. @param {() => void} listener */
export function whenSignedOut(listener) {
  onSignedOut.add(listener);
  return () => onSignedOut.delete(listener);
}

/** Ask who this browser is. */
export async function loadSession() {
  session = await call("GET", "/v1/session");
  return session;
}

/** @param {string} key */
export async function signIn(key) {
  session = await call("POST", "/v1/session", { body: { key } });
  return session;
}

export async function signOut() {
  await call("DELETE", "/v1/session");
  session = { ...session, signed_in: false, csrf: null, name: null };
  for (const listener of onSignedOut) listener();
}

// --- Executions.

/** @param {Query} query @param {Signal} [signal] @returns {Promise<Page<Execution>>} */
export const listExecutions = (query, signal) => call("GET", "/v1/executions", { query, signal });
/** @param {string} id @param {"all" | "brief" | "none"} [nodes] @param {Signal} [signal] @returns {Promise<Execution>} */
export const getExecution = (id, nodes = "none", signal) => call("GET", v1("executions", id), { query: { nodes }, signal });
/** @param {string} id @param {string} node @param {Signal} [signal] @returns {Promise<import("./types").NodeDetail>} */
export const getNode = (id, node, signal) => call("GET", v1("executions", id, "nodes", node), { signal });
/** @param {string} id @param {string} node @param {Signal} [signal] @returns {Promise<import("./types").Explanation>} */
export const explainNode = (id, node, signal) => call("GET", v1("executions", id, "nodes", node, "explain"), { signal });
/** @param {string} id @returns {Promise<Execution>} */
export const cancelExecution = (id) => call("POST", v1("executions", id, "cancel"));
/** @param {string} id @returns {Promise<Execution>} */
export const pauseExecution = (id) => call("POST", v1("executions", id, "pause"));
/** @param {string} id @returns {Promise<Execution>} */
export const resumeExecution = (id) => call("POST", v1("executions", id, "resume"));
/** @param {string} id @param {string[]} [nodes] @returns {Promise<Execution>} */
export const retryExecution = (id, nodes) =>
  call("POST", v1("executions", id, "retry"), { body: nodes?.length ? { nodes } : {}, once: true });
/** @param {string} id @param {string[]} [nodes] @returns {Promise<{generation: number, run: string[], reuse: string[]}>} */
export const planRetry = (id, nodes) =>
  call("POST", v1("executions", id, "retry"), { body: { ...(nodes?.length ? { nodes } : {}), dry_run: true } });
/** @param {string} id @param {{from?: string[], input?: any, version?: any}} body @returns {Promise<Execution>} */
export const forkExecution = (id, body) => call("POST", v1("executions", id, "fork"), { body, once: true });
/** @param {string} id @param {Signal} [signal] @returns {Promise<import("./types").Timeline>} */
export const getTimeline = (id, signal) => call("GET", v1("executions", id, "timeline"), { signal });
/** The paths of the streams of an execution; live.js opens them. @param {string} id @param {"live" | "logs" | "events"} what */
export const streamPath = (id, what) => v1("executions", id, what);

/** The graphs seen last, by digest: a graph never changes. @type {Map<string, import("./types").Topology>} */
const graphs = new Map();

/** @param {string} id @param {string} digest of the execution's definition @returns {Promise<import("./types").Topology>} */
export async function getTopology(id, digest) {
  return graphs.get(digest) ?? keepGraph(digest, await call("GET", v1("executions", id, "topology")));
}

/** @param {string} digest @param {import("./types").Topology} graph */
function keepGraph(digest, graph) {
  graphs.set(digest, graph);
  if (graphs.size > 8) graphs.delete(/** @type {string} */ (graphs.keys().next().value));
  return graph;
}

// --- Workflows.

/** @param {Query} query @param {Signal} [signal] @returns {Promise<Page<import("./types").Workflow>>} */
export const listWorkflows = (query, signal) => call("GET", "/v1/workflows", { query, signal });
/** @param {string} name @param {string | number} [version] @param {Signal} [signal] @returns {Promise<import("./types").Workflow>} */
export const getWorkflow = (name, version, signal) => call("GET", v1("workflows", name), { query: { version }, signal });
/** @param {string} name @param {Query} query @param {Signal} [signal] @returns {Promise<Page<import("./types").Version>>} */
export const listVersions = (name, query, signal) => call("GET", v1("workflows", name, "versions"), { query, signal });
/** @param {string} name @param {string | number} [version] @param {Signal} [signal] @returns {Promise<import("./types").Topology>} */
export const getWorkflowTopology = (name, version, signal) =>
  call("GET", v1("workflows", name, "topology"), { query: { version }, signal });
/** @param {string} name @param {string | number} [version] @param {Signal} [signal] @returns {Promise<import("./types").Statistics>} */
export const getStatistics = (name, version, signal) =>
  call("GET", v1("workflows", name, "statistics"), { query: { version }, signal });
/** @param {string} name @param {{input?: any, version?: any, labels?: any, priority?: string}} body @returns {Promise<Execution>} */
export const startExecution = (name, body) => call("POST", v1("workflows", name, "executions"), { body, once: true });
/** @param {{definition: any, input?: any, labels?: any, priority?: string}} body @returns {Promise<Execution>} */
export const submitExecution = (body) => call("POST", "/v1/executions", { body, once: true });
/** @param {string} name */
export const deleteWorkflow = (name) => call("DELETE", v1("workflows", name));

// --- Batches.

/** @param {Query} query @param {Signal} [signal] @returns {Promise<Page<import("./types").Batch>>} */
export const listBatches = (query, signal) => call("GET", "/v1/batches", { query, signal });
/** @param {string} id @param {Signal} [signal] @returns {Promise<import("./types").Batch>} */
export const getBatch = (id, signal) => call("GET", v1("batches", id), { signal });
/** @param {string} id @param {Query} query @param {Signal} [signal] @returns {Promise<Page<import("./types").BatchResult>>} */
export const listBatchResults = (id, query, signal) => call("GET", v1("batches", id, "results"), { query, signal });
/** @param {string} id @returns {Promise<import("./types").Batch>} */
export const cancelBatch = (id) => call("POST", v1("batches", id, "cancel"));

// --- Questions: nodes that wait for an answer.

/** @param {Query} query @param {Signal} [signal] @returns {Promise<Page<import("./types").Wait>>} */
export const listWaits = (query, signal) => call("GET", "/v1/waits", { query, signal });
/** @param {string} id @param {string} node @param {any} value @returns {Promise<import("./types").NodeDetail>} */
export const answerWait = (id, node, value) => call("POST", v1("executions", id, "nodes", node, "answer"), { body: { value }, once: true });

// --- Triggers.

/** @param {Query} query @param {Signal} [signal] @returns {Promise<Page<import("./types").Trigger>>} */
export const listTriggers = (query, signal) => call("GET", "/v1/triggers", { query, signal });
/** @param {string} name @param {Signal} [signal] @returns {Promise<import("./types").TriggerDetail>} */
export const getTrigger = (name, signal) => call("GET", v1("triggers", name), { signal });
/** @param {string} name @param {any} body @returns {Promise<import("./types").Trigger>} */
export const putTrigger = (name, body) => call("PUT", v1("triggers", name), { body });
/** @param {string} name */
export const deleteTrigger = (name) => call("DELETE", v1("triggers", name));
/** @param {string} name @param {boolean} enabled @returns {Promise<import("./types").Trigger>} */
export const setTriggerEnabled = (name, enabled) => call("POST", v1("triggers", name, enabled ? "enable" : "disable"));
/** @param {string} name @param {{event?: any, request?: any}} body @returns {Promise<Execution>} */
export const fireTrigger = (name, body) => call("POST", v1("triggers", name, "fire"), { body, once: true });
/** @param {string} name @param {{from: string, to: string, max_running?: number, dry_run?: boolean}} body */
export const backfillTrigger = (name, body) => call("POST", v1("triggers", name, "backfill"), { body });
/** @param {Query} query @param {Signal} [signal] @returns {Promise<Page<import("./types").InboundEvent>>} */
export const listInboundEvents = (query, signal) => call("GET", "/v1/events/inbound", { query, signal });

// --- Dead letters.

/** @param {Query} query @param {Signal} [signal] */
export const listDeadLetters = (query, signal) => call("GET", "/v1/dead-letters", { query, signal });
/** @param {Query} query @param {Signal} [signal] */
export const listDeadLetterGroups = (query, signal) => call("GET", "/v1/dead-letters/groups", { query, signal });
/** @param {string} id @returns {Promise<Execution>} */
export const retryDeadLetter = (id) => call("POST", v1("dead-letters", id, "retry"), { once: true });
/** @param {string} id */
export const dropDeadLetter = (id) => call("DELETE", v1("dead-letters", id));
/** @param {"retry" | "drop"} what @param {{workflow?: string | null, node?: string, code?: string | null, ids?: string[], cursor?: string}} which @returns {Promise<import("./types").LettersChanged>} */
export const changeDeadLetters = (what, which) => call("POST", `/v1/dead-letters/${what}`, { body: which, once: what === "retry" });

// --- The fleet and the server.

/** @param {Signal} [signal] */
export const listWorkers = (signal) => call("GET", "/v1/workers", { signal });
/** @param {Signal} [signal] */
export const listQueues = (signal) => call("GET", "/v1/queues", { signal });
/** @param {Signal} [signal] */
export const getOverview = (signal) => call("GET", "/v1/overview", { signal });
/** @param {Signal} [signal] */
export const getAbout = (signal) => call("GET", "/v1/about", { signal });

/** Return the readiness of the server, also where it is not ready (503). @param {Signal} [signal] */
export async function getReadiness(signal) {
  const response = await fetch(addressOf("/readyz"), { signal, credentials: "same-origin" });
  return response.json();
}
