// Dead letters, grouped by workflow, node and error: look at one, then decide for all that have the same cause.

import { changeLetters } from "../dead_letters/actions.js";
import { LETTER_STATES, firstLine, keyOf, lettersText, loadGroups, sumOf } from "../dead_letters/groups.js";
import { GroupBody } from "../dead_letters/letters.js";
import { Icon } from "../ui/icons.js";
import { visible } from "../ui/json_tree.js";
import { focusToggle, useKeys } from "../ui/keys.js";
import { Empty, Loading, Note, ProblemNote, useLoad } from "../ui/load.js";
import { PageHeader } from "../ui/parts.js";
import { html, useState } from "../ui/preact.js";
import { setQuery } from "../ui/router.js";
import { SearchField, WorkflowSelect } from "../ui/search_field.js";
import { Ago, formatCount } from "../ui/time.js";

export const title = "Dead letters";

/** @typedef {import("../types").LetterGroup} LetterGroup */

const REFRESH_MS = 5000;
const FIRST = 100;

/** @param {{query: URLSearchParams}} props */
export function Page({ query }) {
  const state = LETTER_STATES.includes(query.get("state") ?? "") ? /** @type {string} */ (query.get("state")) : "open";
  const workflow = query.get("workflow");
  const q = query.get("q");
  const [wanted, setWanted] = useState(FIRST);
  const { data, problem, reload } = useLoad((signal) => loadGroups({ state, workflow, q, wanted }, signal), [state, workflow, q, wanted], { every: REFRESH_MS });
  const groups = data?.groups ?? [];
  const sum = sumOf(groups, Boolean(data?.more));
  useKeys("Dead letters", {
    j: ["Next group", () => focusToggle(1)],
    k: ["Group before", () => focusToggle(-1)],
    Escape: ["Close the group", () => setQuery({ open: null })],
  });
  const act = async (/** @type {"retry" | "drop"} */ what) => {
    const chosen = data?.isPlain ? { letters: groups.flatMap((group) => group.letters ?? []) } : { which: workflow ? { workflow } : {} };
    const found = q ? html`That have <bdi>${q}</bdi> in them, and` : "All that";
    const where = workflow ? html`${found} are open of the workflow <bdi>${workflow}</bdi>.` : html`${found} are open.`;
    if (await changeLetters(what, { ...sum, ...chosen, where })) reload();
  };
  const actions = state === "open" && sum.count > 0 && html`
    <button onClick=${() => act("retry")}>Retry all…</button>
    <button class="danger" onClick=${() => act("drop")}>Drop all…</button>`;
  return html`<div class="page">
    <${PageHeader} title="Dead letters" actions=${actions}
      about=${data && html`<span aria-live="polite">${sum.count ? `${lettersText(sum.count, sum.atLeast)} in ${formatCount(groups.length)} ${groups.length === 1 ? "group" : "groups"}` : ""}</span>`} />
    <${Filters} state=${state} workflow=${workflow} q=${q} />
    ${data?.isPlain && data.more && html`<${Note} kind="warning">${`There are more: these are groups of the newest ${sum.count} that have the text.`}</${Note}>`}
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    ${data && (groups.length
      ? html`<ul class="letter-groups" role="list">${groups.map((group) => html`<${Group} key=${keyOf(group)} group=${group} state=${state} isOpen=${query.get("open") === keyOf(group)} onChanged=${reload} />`)}</ul>`
      : html`<${None} state=${state} workflow=${workflow} q=${q} />`)}
    ${data?.more && !data.isPlain && html`<div><button onClick=${() => setWanted(wanted + FIRST)}>Show more groups</button></div>`}
  </div>`;
}

/** @param {{state: string, workflow: string | null, q: string | null}} props */
function Filters({ state, workflow, q }) {
  return html`<div class="row wrap" role="group" aria-label="Filters">
    <${SearchField} value=${q ?? ""} label="Search dead letters" hint="Node, id or text of the error" besides=${{ open: null }} />
    <div class="chips" role="group" aria-label="State">
      ${LETTER_STATES.map((name) => html`<button class="chip" aria-pressed=${String(name === state)} onClick=${() => setQuery({ state: name === "open" ? null : name, open: null })}>${name}</button>`)}
    </div>
    <${WorkflowSelect} workflow=${workflow} />
  </div>`;
}

/** @param {{group: LetterGroup, state: string, isOpen: boolean, onChanged: () => void}} props */
function Group({ group, state, isOpen, onChanged }) {
  const name = html`<bdi>${group.workflow ?? "not stored by name"}</bdi> <span class="muted" aria-hidden="true">›</span> <bdi>${group.node}</bdi>`;
  const number = group.count > 1 ? ` ${formatCount(group.count)}` : "";
  const act = async (/** @type {"retry" | "drop"} */ what) => {
    const which = { workflow: group.workflow, node: group.node, code: group.code };
    const where = html`${name} · <code>${group.code}</code>`;
    const { count, executions, atLeast } = sumOf([group], false);
    if (await changeLetters(what, { count, executions, atLeast, letters: group.letters, which, where })) onChanged();
  };
  return html`<li class="card letter-group">
    <div class="letter-head">
      <h2><button class="plain letter-toggle" aria-expanded=${String(isOpen)} onClick=${() => setQuery({ open: isOpen ? null : keyOf(group) })}>
        <${Icon} name=${isOpen ? "down" : "right"} /><span class="break">${name}</span>
      </button></h2>
      <code class="state-failed">${group.code}</code>
      <span class="letter-count number" title=${`of ${formatCount(group.executions)} executions`}>${`×${formatCount(group.count)}`}</span>
      <span class="muted small letter-times">last <${Ago} at=${group.last_at} />${group.count > 1 && html` · first <${Ago} at=${group.first_at} />`}</span>
      ${state === "open" && html`<span class="letter-tools row">
        <button onClick=${() => act("retry")}>${`Retry${number}…`}</button>
        <button class="danger" onClick=${() => act("drop")}>${`Drop${number}…`}</button>
      </span>`}
    </div>
    ${isOpen
      ? html`<${GroupBody} group=${group} state=${state} onChanged=${onChanged} />`
      : html`<div class="letter-message ellipsis mono"><bdi>${visible(firstLine(group.sample.error.message))}</bdi></div>`}
  </li>`;
}

/** @param {{state: string, workflow: string | null, q: string | null}} props */
function None({ state, workflow, q }) {
  if (workflow || q || state !== "open") {
    const which = `${workflow ? " of this workflow" : ""}${q ? " with this text" : ""}`;
    return html`<${Empty} title=${`No dead letter is ${state}${which}.`}><button onClick=${() => setQuery({ state: null, workflow: null, q: null })}>Show all that are open</button></${Empty}>`;
  }
  return html`<${Empty} title="No dead letters.">
    <p>A node that has failed for good leaves one here, with its error and its config, until it is retried or dropped.</p>
  </${Empty}>`;
}
