// A question and the form that answers it: on a page of its own, in the inbox, and beside an execution.

import { answerWait } from "../api.js";
import { JsonTree, visible } from "../ui/json_tree.js";
import { useKeys } from "../ui/keys.js";
import { Note, ProblemNote, asProblem, useLoad } from "../ui/load.js";
import { html, useMemo } from "../ui/preact.js";
import { SchemaForm, filledWith, useForm } from "../ui/schema_form.js";
import { shapeOf } from "../ui/schema_shape.js";
import { Ago, Countdown, formatTime, useNow } from "../ui/time.js";
import { say } from "../ui/toast.js";
import { findWait, keysOf, optionsOf } from "./question.js";

/** @typedef {import("../types").Wait} Wait */

const REFRESH_MS = 3000;
const SOON_MS = 600_000;

/** @param {{text: string | null}} props */
export function Prompt({ text }) {
  return text === null ? null : html`<p class="prompt break"><bdi>${visible(text)}</bdi></p>`;
}

/** Since when it is asked, and when it expires. @param {{wait: Wait}} props */
export function Ages({ wait: { since, expires_at: expires } }) {
  const now = useNow(1000, expires !== null);
  const left = expires === null ? Infinity : Date.parse(expires) - now;
  return html`<span class="muted small nowrap">asked <${Ago} at=${since} /></span>
    ${expires && html`<span class=${`small nowrap ${left < SOON_MS ? "state-failed" : "muted"}`} title=${formatTime(expires)}>expires ${left > 0 && "in "}<${Countdown} until=${expires} /></span>`}`;
}

/**
 * The form of one question. The first answer counts; whoever comes second is told so.
 * @param {{wait: Wait, onAnswered: () => void, keys?: boolean}} props `keys`: this form takes the keys of the page
 */
export function AnswerForm({ wait, onAnswered, keys = false }) {
  const schema = JSON.stringify(wait.schema ?? true);
  const shape = useMemo(() => shapeOf(JSON.parse(schema)), [schema]);
  const options = useMemo(() => optionsOf(shape), [shape]);
  const { filled, setFilled, messages, problem, busy, form, send } = useForm(shape, () => filledWith(shape, undefined, ""), "/value");
  const choose = (/** @type {string} */ draft) => {
    setFilled({ draft, json: null });
    // Enter sends it: an answer cannot be taken back, so one key alone never gives it.
    /** @type {HTMLElement | null | undefined} */ (form.current?.querySelector("button.primary"))?.focus();
  };
  const letters = keysOf(options ?? []);
  useKeys("Question", keys && options ? Object.fromEntries(options.map(({ draft, name }, i) => [letters[i], [`Choose ${name}`, () => choose(draft)]])) : {});
  const answer = async (/** @type {any} */ value) => {
    try {
      await answerWait(wait.execution, wait.node, value);
      say(html`<bdi>${wait.node}</bdi> is answered.`);
      onAnswered();
    } catch (error) {
      // Somebody else was first, or it has expired: the list says so.
      if (asProblem(error).status === 409) onAnswered();
      throw error;
    }
  };
  const id = `answer-${wait.execution}-${wait.node}`;
  return html`<form class="answer stack" ref=${form} onSubmit=${(/** @type {Event} */ event) => send(event, answer)} noValidate aria-label=${`Answer to ${wait.node}`}>
    ${options
      ? html`<fieldset class="field" role="radiogroup" tabindex="-1" aria-invalid=${String(messages.size > 0)}><legend>${shape.title || "Answer"}</legend>
          ${shape.about && html`<p class="field-about">${shape.about}</p>`}
          <div class="row wrap options">${options.map(({ draft, name }, i) => html`<label class="option">
            <input type="radio" name=${id} checked=${filled.draft === draft} onChange=${() => setFilled({ draft, json: null })} /> <bdi>${name}</bdi>${keys && html` <kbd>${letters[i]}</kbd>`}</label>`)}</div>
          <div class="field-said" aria-live="polite">${(messages.get("") ?? []).map((one) => html`<p class="break">${one}</p>`)}</div>
        </fieldset>`
      : html`<${SchemaForm} shape=${shape} filled=${filled} onChange=${setFilled} messages=${messages} label="Answer" prefix=${id} />`}
    ${shape.kind === "json" && html`<p class="field-about">${"Any JSON that fits: \"text\" in quotes, a number, true, false, null, a list or an object."}</p>`}
    <${ProblemNote} problem=${problem} />
    <div><button class="primary" type="submit" disabled=${busy}>Answer</button></div>
  </form>`;
}

/** The question of a node, if it asks one now. @param {{id: string, node: string}} props */
export function OpenQuestion({ id, node }) {
  const { data: wait, reload } = useLoad((signal) => findWait(id, node, signal), [id, node], { every: REFRESH_MS });
  return wait ? html`<section class="card stack" aria-label="Question"><${Prompt} text=${wait.prompt} /><${AnswerForm} wait=${wait} onAnswered=${reload} /></section>` : null;
}

/** Who answered, when and what. @param {{answer: {value: any, by: string | null, at: string, expired: boolean}}} props */
export function Answered({ answer: { value, by, at, expired } }) {
  const who = expired ? "Nobody answered in time; this is the default," : by === null ? "Answered" : html`Answered by <bdi>${by}</bdi>`;
  return html`<${Note}><p>${who} <${Ago} at=${at} /></p><${JsonTree} value=${value} label="Answer" /></${Note}>`;
}
