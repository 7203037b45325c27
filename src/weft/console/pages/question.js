// One question, at the address that a notification has: its form while it is open, and then what became of it.

import { ProblemNote, Loading, Note, useLoad } from "../ui/load.js";
import { PageHeader, shortId } from "../ui/parts.js";
import { html } from "../ui/preact.js";
import { href, to } from "../ui/router.js";
import { State, isSettled } from "../ui/states.js";
import { Ages, AnswerForm, Answered, Prompt } from "../waits/answer_form.js";
import { answerOf, loadQuestion } from "../waits/question.js";
import { Failure } from "../execution/node_sheet.js";

/** @param {Record<string, string>} params */
export const title = (params) => `Question ${params.node}`;

const REFRESH_MS = 3000;

/** @param {{params: {execution: string, node: string}}} props */
export function Page({ params: { execution, node } }) {
  const { data, problem, reload } = useLoad((signal) => loadQuestion(execution, node, signal), [execution, node], { every: REFRESH_MS });
  const wait = data?.wait;
  const links = html`<a class="button" href=${href(to("executions", execution), { node })}>Execution</a> <a class="button" href="#/waits">Inbox</a>`;
  return html`<div class="page question">
    <${PageHeader} title=${html`<bdi>${node}</bdi>`} about=${html`<bdi>${wait?.workflow ?? ""}</bdi> <code title=${execution}>${shortId(execution)}</code>`} actions=${links} />
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    ${wait && html`<div class="card stack"><div class="row wrap"><${Ages} wait=${wait} /></div><${Prompt} text=${wait.prompt} /><${AnswerForm} wait=${wait} onAnswered=${reload} keys /></div>`}
    ${data?.detail && html`<${Ended} detail=${data.detail} />`}
  </div>`;
}

/** @param {{detail: import("../types").NodeDetail}} props */
function Ended({ detail }) {
  const answer = answerOf(detail);
  if (answer) return html`<${Answered} answer=${answer} />`;
  const said = detail.state === "WAITING" ? "Nobody is asked." : isSettled(detail.state) ? "It is not asked any more." : "It is not asked yet.";
  return html`<${Note}><p><${State} name=${detail.state} /></p><p>${said}</p></${Note}>${detail.error && html`<${Failure} error=${detail.error} />`}`;
}
