// The versions of a workflow, the definition of the one that is shown, and its difference from another.

import { getWorkflow, listVersions } from "../api.js";
import { JsonTree, visible } from "../ui/json_tree.js";
import { Loading, Note, ProblemNote, useLoad } from "../ui/load.js";
import { CopyButton, Pager, cursorOf } from "../ui/parts.js";
import { html, useMemo, useState } from "../ui/preact.js";
import { href, place, setQuery } from "../ui/router.js";
import { Ago, formatCount } from "../ui/time.js";
import { diffLines, hunksOf, linesOf, sizeOf } from "./diff.js";

const PAGE = 50;
const LINES_AT_ONCE = 1000;
const MOST_TEXT = 1000;

/** @param {{name: string, workflow: import("../types").Workflow, query: URLSearchParams}} props */
export function VersionsTab({ name, workflow, query }) {
  const against = Number(query.get("against")) || null;
  const cursor = cursorOf(query);
  const { data, problem, reload } = useLoad((signal) => listVersions(name, { limit: PAGE, cursor }, signal), [name, cursor]);
  return html`<div class="versions">
    <section class="stack" aria-label="Versions">
      ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
      ${!data && !problem && html`<${Loading} />`}
      ${data && html`<ul class="version-list">${data.items.map((one) => html`<${VersionRow} key=${one.version} one=${one} workflow=${workflow} against=${against} />`)}</ul>`}
      <${Pager} query=${query} next=${data?.next_cursor} label="versions" />
    </section>
    <section class="stack definition" aria-label="Definition">
      ${against && against !== workflow.version
        ? html`<${Difference} key=${`${against} ${workflow.version}`} name=${name} workflow=${workflow} against=${against} />`
        : html`<h2>Version ${workflow.version}</h2><div class="card"><${JsonTree} key=${workflow.version} value=${workflow.definition} label="Definition" /></div>`}
    </section>
  </div>`;
}

/** @param {{one: import("../types").Version, workflow: import("../types").Workflow, against: number | null}} props */
function VersionRow({ one, workflow, against }) {
  const shown = one.version === workflow.version;
  const aliases = Object.entries(workflow.aliases).filter(([, version]) => version === one.version);
  const { path, query } = place();
  const link = (/** @type {Record<string, any>} */ changes) => href(path, { ...Object.fromEntries(query), ...changes });
  return html`<li class=${`version${shown ? " current" : ""}${one.version === against ? " against" : ""}`}>
    <a class="version-name" href=${link({ version: one.version, against: null })} aria-current=${shown ? "true" : null}>Version ${one.version}</a>
    ${aliases.map(([alias]) => html`<span class="label" title="An alias of this version"><bdi>${alias}</bdi></span>`)}
    <span class="muted small grow"><${Ago} at=${one.created_at} /></span>
    ${shown
      ? html`<span class="muted small">shown</span>`
      : html`<a class="small" href=${link({ version: workflow.version, against: one.version })} aria-current=${one.version === against ? "true" : null}
          title=${`What differs between version ${one.version} and version ${workflow.version}`}>compare</a>`}
  </li>`;
}

/** @param {{name: string, workflow: import("../types").Workflow, against: number}} props */
function Difference({ name, workflow, against }) {
  const { data, problem, reload } = useLoad((signal) => getWorkflow(name, against, signal), [name, against]);
  // The older one is at the left, whichever of the two is shown.
  const [from, until] = against < workflow.version ? [data, workflow] : [workflow, data];
  const lines = useMemo(() => (data ? diffLines(linesOf(from?.definition), linesOf(until?.definition)) : null), [data, workflow]);
  if (problem) return html`<${ProblemNote} problem=${problem} retry=${reload} />`;
  if (!lines) return html`<${Loading} />`;
  const { removed, added } = sizeOf(lines);
  const asText = () => lines.map((line) => `${SIGNS[line.kind]}${line.text}`).join("\n");
  return html`<div class="row wrap">
      <h2>${`Version ${from?.version} to version ${until?.version}`}</h2>
      <span class="diff-added number">${`+${formatCount(added)}`}<span class="sr-only"> lines added</span></span>
      <span class="diff-removed number">${`−${formatCount(removed)}`}<span class="sr-only"> lines removed</span></span>
      <${CopyButton} text=${asText} what="Difference copied" />
      <button class="link" onClick=${() => setQuery({ against: null })}>Show the definition</button>
    </div>
    ${removed + added === 0 ? html`<${Note}>These two versions have the same definition.</${Note}>` : html`<${Hunks} lines=${lines} />`}`;
}

const SIGNS = { same: "  ", removed: "- ", added: "+ " };
const WORDS = { same: "", removed: "removed", added: "added" };

/** @param {{lines: import("./diff.js").Line[]}} props */
function Hunks({ lines }) {
  const [whole, setWhole] = useState(false);
  const [most, setMost] = useState(LINES_AT_ONCE);
  const hunks = useMemo(() => hunksOf(lines, whole ? lines.length : 3), [lines, whole]);
  let left = most;
  /** @type {any[]} */
  const rows = [];
  for (const hunk of hunks) {
    if (left <= 0) break;
    if ("hidden" in hunk) rows.push(html`<tr class="diff-gap"><td colspan="4"><button class="link" onClick=${() => setWhole(true)}>${`${formatCount(hunk.hidden)} equal ${hunk.hidden === 1 ? "line" : "lines"}`}</button></td></tr>`);
    else for (const line of hunk.lines.slice(0, left)) rows.push(html`<${DiffLine} line=${line} />`);
    left -= "hidden" in hunk ? 1 : hunk.lines.length;
  }
  return html`<div class="card diff-card"><table class="diff"><tbody>${rows}</tbody></table></div>
    ${left < 0 && html`<button class="link" onClick=${() => setMost(most * 4)}>Show more lines</button>`}`;
}

/** @param {{line: import("./diff.js").Line}} props */
function DiffLine({ line }) {
  const text = line.text.length > MOST_TEXT ? `${line.text.slice(0, MOST_TEXT)}…` : line.text;
  return html`<tr class=${`diff-${line.kind}`}>
    <td class="diff-number">${line.left}</td><td class="diff-number">${line.right}</td>
    <td class="diff-sign"><span aria-hidden="true">${SIGNS[line.kind].trim()}</span><span class="sr-only">${WORDS[line.kind]}</span></td>
    <td class="diff-text"><bdi>${visible(text)}</bdi></td>
  </tr>`;
}
