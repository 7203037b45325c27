// What starts the same execution again, from a shell or a program.

import { ROOT, sessionNow } from "../api.js";

/** @param {string} text */
export function shellQuoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * Return JSON as a literal of Python.
 * @param {any} value @returns {string}
 */
export function pythonLiteral(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${pythonLiteral(one)}`).join(", ")}}`;
  }
  // A JSON string is a Python string, but for the characters outside of the first plane, which JSON leaves as they are.
  return JSON.stringify(value);
}

/** @typedef {{workflow: string | null, version: number | null, input?: any, labels?: Record<string, string>, priority?: string}} Started */

/** @param {Started} started */
function bodyOf({ version, input, labels, priority }) {
  return {
    input: input ?? {},
    ...(version ? { version } : {}),
    ...(labels && Object.keys(labels).length ? { labels } : {}),
    ...(priority && priority !== "normal" ? { priority } : {}),
  };
}

/** The forms that a menu offers: what each is called, how it is written, and what is said when it is copied. */
export const FORMS = /** @type {[string, (started: Started) => string, string][]} */ ([
  ["As curl", asCurl, "curl copied"],
  ["As a command", asCommand, "Command copied"],
  ["As Python", asPython, "Python copied"],
]);

/** @param {Started} started @param {{root?: string, keys?: boolean}} [server] */
export function asCurl(started, { root = ROOT, keys = sessionNow().keys } = {}) {
  const lines = [
    `curl -X POST ${shellQuoted(`${root}v1/workflows/${encodeURIComponent(started.workflow ?? "NAME")}/executions`)}`,
    ...(keys ? [`-H "Authorization: Bearer $WEFT_API_KEY"`] : []),
    `-H 'Content-Type: application/json'`,
    `-d ${shellQuoted(JSON.stringify(bodyOf(started)))}`,
  ];
  return lines.join(" \\\n  ");
}

/** @param {Started} started @param {{root?: string}} [server] */
export function asCommand(started, { root = ROOT } = {}) {
  const { version, input, labels, priority } = started;
  const parts = [`weft start ${shellQuoted(started.workflow ?? "NAME")}`];
  if (version) parts.push(`--version ${version}`);
  for (const [key, value] of Object.entries(labels ?? {})) parts.push(`--label ${shellQuoted(`${key}=${value}`)}`);
  if (priority && priority !== "normal") parts.push(`--priority ${priority}`);
  const where = root === "http://127.0.0.1:8700/" ? "" : `WEFT_URL=${shellQuoted(root.replace(/\/$/, ""))} `;
  const hasInput = input && Object.keys(input).length > 0;
  const command = `${where}${parts.join(" ")}`;
  return hasInput ? `printf '%s' ${shellQuoted(JSON.stringify(input))} |\n  ${command} --input-file -` : command;
}

/** @param {Started} started @param {{root?: string}} [server] */
export function asPython(started, { root = ROOT } = {}) {
  const { version, labels, priority } = started;
  const extra = [
    ...(version ? [`version=${version}`] : []),
    ...(labels && Object.keys(labels).length ? [`labels=${pythonLiteral(labels)}`] : []),
    ...(priority && priority !== "normal" ? [`priority=${pythonLiteral(priority)}`] : []),
  ];
  const given = [pythonLiteral(started.workflow ?? "NAME"), pythonLiteral(started.input ?? {}), ...extra].join(", ");
  return [
    "import weft",
    "",
    `with weft.Client(${JSON.stringify(root.replace(/\/$/, ""))}) as client:`,
    `    started = client.start(${given})`,
    "    print(client.wait(started.id).output)",
    "",
  ].join("\n");
}
