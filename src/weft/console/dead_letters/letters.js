// The letters of one group, and what the newest of them tells.

import { listDeadLetters } from "../api.js";
import { Failure } from "../execution/node_sheet.js";
import { JsonTree, visible } from "../ui/json_tree.js";
import { Loading, ProblemNote, useLoad } from "../ui/load.js";
import { shortId } from "../ui/parts.js";
import { html, useState } from "../ui/preact.js";
import { href, to } from "../ui/router.js";
import { Ago, formatCount } from "../ui/time.js";
import { changeLetters } from "./actions.js";
import { belongs, firstLine } from "./groups.js";

/** @typedef {import("../types").DeadLetter} DeadLetter */
/** @typedef {import("../types").LetterGroup} LetterGroup */

const FIRST = 20;
const REFRESH_MS = 5000;

/** @param {{group: LetterGroup, state: string, onChanged: () => void}} props */
export function GroupBody({ group, state, onChanged }) {
  const { sample } = group;
  return html`<div class="letter-body">
    <${Failure} error=${{ ...sample.error, node: undefined }} />
    <details class="section">
      <summary><h3>Config</h3><span class="muted small">${`of the newest, as ${sample.handler} received it`}</span></summary>
      <div class="section-body"><${JsonTree} value=${sample.config} label="Config" /></div>
    </details>
    <${Letters} group=${group} state=${state} onChanged=${onChanged} />
  </div>`;
}

/** @param {{group: LetterGroup, state: string, onChanged: () => void}} props */
function Letters({ group, state, onChanged }) {
  const [wanted, setWanted] = useState(FIRST);
  const known = group.letters;
  const { data, problem, reload } = useLoad(async (signal) => (known ? null : readLetters(group, { state, limit: wanted }, signal)), [wanted, group.count, Boolean(known)], {
    every: known ? 0 : REFRESH_MS,
  });
  const letters = known ? known.slice(0, wanted) : data?.letters;
  const more = known ? known.length > wanted : data?.more;
  if (problem) return html`<${ProblemNote} problem=${problem} retry=${reload} />`;
  if (!letters) return html`<${Loading} />`;
  const act = async (/** @type {"retry" | "drop"} */ what, /** @type {DeadLetter} */ letter) => {
    const where = html`<bdi>${letter.node}</bdi> of the execution <code>${letter.execution}</code>`;
    if (!(await changeLetters(what, { count: 1, executions: 1, letters: [letter], where }))) return;
    reload();
    onChanged();
  };
  return html`<div class="scroll-x" tabindex="0" role="group" aria-label="Letters of this group"><table class="fleet letters">
    <thead><tr><th>Execution</th><th class="number">Attempt</th><th>Failed</th><th>Message</th><th><span class="sr-only">Actions</span></th></tr></thead>
    <tbody>${letters.map((letter) => html`<tr key=${letter.id}>
      <td class="mono nowrap"><a href=${href(to("executions", letter.execution), { tab: "nodes", node: letter.node })} title=${letter.execution}>${shortId(letter.execution)}</a>
        ${letter.generation > 1 && html`<span class="muted" title="Generation: it was retried">${` ↻${letter.generation}`}</span>`}</td>
      <td class="number">${letter.attempt}</td>
      <td class="nowrap"><${Ago} at=${letter.created_at} /></td>
      <td class="letter-text"><div class="ellipsis" title=${visible(letter.error.message.slice(0, 2000))}><bdi>${visible(firstLine(letter.error.message))}</bdi></div></td>
      <td class="nowrap letter-actions">
        ${(state === "open" || state === "dropped") && html`<button class="link" aria-label=${`Retry the letter of ${letter.execution}`} onClick=${() => act("retry", letter)}>Retry…</button>`}
        ${state === "open" && html` <button class="link danger" aria-label=${`Drop the letter of ${letter.execution}`} onClick=${() => act("drop", letter)}>Drop…</button>`}
      </td>
    </tr>`)}</tbody>
  </table></div>
  ${more && html`<div><button onClick=${() => setWanted(wanted + 100)}>${`Show more of ${formatCount(group.count)}`}</button></div>`}`;
}

const MOST_A_CALL = 500;

/**
 * Read letters of a group. A workflow or code that is null cannot be asked for; those are picked out here.
 * @param {LetterGroup} group @param {{state: string, limit: number}} which @param {AbortSignal} signal
 */
async function readLetters(group, { state, limit }, signal) {
  /** @type {import("../types").Page<DeadLetter>} */
  const page = await listDeadLetters({ state, workflow: group.workflow, node: group.node, code: group.code, limit: Math.min(limit, MOST_A_CALL) }, signal);
  const letters = page.items.filter((/** @type {DeadLetter} */ letter) => belongs(letter, group));
  return { letters, more: page.next_cursor !== null && limit < MOST_A_CALL };
}
