// What the form that starts an execution sends: labels of lines of text, and where what was refused belongs.

/** @typedef {import("../ui/schema_shape.js").Finding} Finding */

/**
 * Return labels from lines "key=value".
 * @param {string} text @returns {{value: Record<string, string>, problems: Finding[]}}
 */
export function readLabels(text) {
  const lines = text.split(/\r?\n/).map((line) => line.trim()).filter((line) => line !== "");
  /** @type {Finding[]} */
  const problems = [];
  /** @type {[string, string][]} */
  const pairs = [];
  for (const line of lines) {
    const mark = line.search(/[=:]/);
    if (mark < 1) problems.push({ pointer: "/labels", message: `"${line}" is not key=value.` });
    else pairs.push([line.slice(0, mark).trim(), line.slice(mark + 1).trim()]);
  }
  return { value: Object.fromEntries(pairs), problems };
}

/**
 * Return what was found in a request by its part: that of the input with pointers from there.
 * @param {readonly Finding[]} findings
 */
export function splitFindings(findings) {
  const isIn = (/** @type {string} */ pointer, /** @type {string} */ part) => pointer === part || pointer.startsWith(`${part}/`);
  const input = findings.filter((one) => isIn(one.pointer, "/input")).map((one) => ({ ...one, pointer: one.pointer.slice("/input".length) }));
  const labels = findings.filter((one) => isIn(one.pointer, "/labels"));
  const other = findings.filter((one) => !isIn(one.pointer, "/input") && !isIn(one.pointer, "/labels"));
  return { input, labels, other };
}
