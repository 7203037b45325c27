// The inbox: the questions that executions ask people now, those that have waited longest first.

import { listWaits } from "../api.js";
import { Icon } from "../ui/icons.js";
import { visible } from "../ui/json_tree.js";
import { focusToggle, useKeys } from "../ui/keys.js";
import { Empty, Loading, Note, ProblemNote, useLoad } from "../ui/load.js";
import { PageHeader, Pager, cursorOf, shortId } from "../ui/parts.js";
import { html, useEffect, useRef } from "../ui/preact.js";
import { href, setQuery, to } from "../ui/router.js";
import { WorkflowSelect } from "../ui/search_field.js";
import { formatCount } from "../ui/time.js";
import { Ages, AnswerForm, Prompt } from "../waits/answer_form.js";
import { keyOf } from "../waits/question.js";

export const title = "Inbox";

/** @typedef {import("../types").Wait} Wait */

const PAGE = 50;
const REFRESH_MS = 3000;

/** @param {{query: URLSearchParams}} props */
export function Page({ query }) {
  const cursor = cursorOf(query);
  const [workflow, open] = ["workflow", "open"].map((name) => query.get(name));
  const { data, problem, reload } = useLoad((signal) => listWaits({ workflow, cursor, limit: PAGE }, signal), [workflow, cursor], { every: REFRESH_MS });
  const rows = data?.items ?? [];
  const wasOpen = useRef("");
  if (rows.some((one) => keyOf(one) === open)) wasOpen.current = open ?? "";
  useKeys("Inbox", {
    j: ["Next question", () => focusToggle(1)],
    k: ["Question before", () => focusToggle(-1)],
    Escape: ["Close the question", () => setQuery({ open: null })],
  });
  // The next question opens by itself, and has the focus.
  const answered = (/** @type {Wait} */ wait) => {
    const at = rows.findIndex((one) => keyOf(one) === keyOf(wait));
    const next = rows[at + 1] ?? rows[at - 1];
    wasOpen.current = "";
    setQuery({ open: next ? keyOf(next) : null }, { replace: true });
    reload();
  };
  const more = data?.next_cursor || cursor;
  return html`<div class="page">
    <${PageHeader} title="Inbox" about=${html`<span aria-live="polite">${data && rows.length ? `${formatCount(rows.length)} ${rows.length === 1 ? "question" : "questions"}${more ? " on this page" : ""}` : ""}</span>`} />
    <div><${WorkflowSelect} workflow=${workflow} /></div>
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    ${data && open && wasOpen.current === open && !rows.some((one) => keyOf(one) === open) && html`<${Note} kind="warning">The question that was open here is answered, or is not asked any more. <a href=${href(`/waits/${open.split("/").map(encodeURIComponent).join("/")}`)}>What became of it</a></${Note}>`}
    ${data && (rows.length
      ? html`<ul class="letter-groups" role="list">${rows.map((wait) => html`<${Question} key=${keyOf(wait)} wait=${wait} isOpen=${keyOf(wait) === open} onAnswered=${() => answered(wait)} />`)}</ul>`
      : html`<${None} filtered=${Boolean(workflow || cursor)} />`)}
    <${Pager} query=${query} next=${data?.next_cursor} label="questions" />
  </div>`;
}

/** @param {{wait: Wait, isOpen: boolean, onAnswered: () => void}} props */
function Question({ wait, isOpen, onAnswered }) {
  const toggle = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    // Opened by the answer to the one before: nothing else has the focus.
    if (isOpen && document.activeElement === document.body) toggle.current?.focus();
  }, [isOpen]);
  const { execution, workflow, node, prompt } = wait;
  return html`<li class="card letter-group">
    <div class="letter-head">
      <h2><button class="plain letter-toggle" ref=${toggle} aria-expanded=${String(isOpen)} onClick=${() => setQuery({ open: isOpen ? null : keyOf(wait) })}>
        <${Icon} name=${isOpen ? "down" : "right"} /><span class="break"><bdi>${workflow ?? "not stored by name"}</bdi> <span class="muted" aria-hidden="true">›</span> <bdi>${node}</bdi></span>
      </button></h2>
      <${Ages} wait=${wait} />
    </div>
    ${isOpen
      ? html`<div class="letter-body">
          <${Prompt} text=${prompt} />
          <${AnswerForm} wait=${wait} onAnswered=${onAnswered} keys />
          <div class="row wrap small"><a href=${href(to("executions", execution), { node })}>execution <code>${shortId(execution)}</code></a>
            <a href=${href(to("waits", execution, node))}>link to this question</a></div>
        </div>`
      : prompt !== null && html`<div class="letter-message ellipsis"><bdi>${visible(prompt)}</bdi></div>`}
  </li>`;
}

/** @param {{filtered: boolean}} props */
function None({ filtered }) {
  if (filtered) return html`<${Empty} title="No question is open here."><p><a href="#/waits">All questions</a></p></${Empty}>`;
  return html`<${Empty} title="Nobody is asked anything now.">
    <p>Questions of nodes with the handler <code>wait</code> appear here by themselves.</p>
  </${Empty}>`;
}
