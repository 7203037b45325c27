// One trigger: when it is due next, what it started, what it left out, and what can be done with it.

import { ROOT, deleteTrigger, getTrigger, setTriggerEnabled } from "../api.js";
import { confirm, openDialog } from "../ui/dialog.js";
import { JsonTree } from "../ui/json_tree.js";
import { Loading, ProblemNote, useLoad } from "../ui/load.js";
import { CopyButton, Labels, Menu, PageHeader, shortId } from "../ui/parts.js";
import { html, useState } from "../ui/preact.js";
import { href, navigate, setQuery, to } from "../ui/router.js";
import { State } from "../ui/states.js";
import { Ago, Duration, formatCount, formatTime } from "../ui/time.js";
import { say, sayProblem } from "../ui/toast.js";
import { BackfillDialog, FireDialog } from "../triggers/dialogs.js";
import { TriggerForm } from "../triggers/form.js";
import { sourceOf } from "../triggers/text.js";
import { Mark } from "./triggers.js";

/** @typedef {import("../types").TriggerDetail} TriggerDetail */

/** @param {Record<string, string>} params */
export const title = (params) => `Trigger ${params.name}`;

const REFRESH_MS = 3000;

/** @param {{params: {name: string}, query: URLSearchParams}} props */
export function Page({ params: { name }, query }) {
  const { data: trigger, problem, reload } = useLoad((signal) => getTrigger(name, signal), [name], { every: REFRESH_MS });
  const edits = query.get("tab") === "edit";
  if (!trigger) return html`<div class="page">${problem ? html`<${ProblemNote} problem=${problem} retry=${reload} />` : html`<${Loading} />`}</div>`;
  const stop = () => setQuery({ tab: null });
  return html`<div class="page">
    <${PageHeader} title=${html`<bdi>${name}</bdi>`} about=${html`<span class="row wrap"><${Mark} trigger=${trigger} /><span>starts <a href=${href(to("workflows", trigger.workflow))}><bdi>${trigger.workflow}</bdi></a> ${trigger.version}</span></span>`}
      actions=${html`<${Actions} trigger=${trigger} reload=${reload} />`} />
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${trigger.error && html`<div class="note note-danger"><strong>${trigger.error.code}</strong> <span class="muted small"><${Ago} at=${trigger.error.at} /></span><p class="break"><bdi>${trigger.error.message}</bdi></p></div>`}
    ${edits
      ? html`<${TriggerForm} trigger=${trigger} onStored=${() => (stop(), reload())} onClose=${stop} />`
      : html`<div class="cards"><${Facts} trigger=${trigger} /><${Upcoming} trigger=${trigger} /></div><${History} trigger=${trigger} />`}
  </div>`;
}

/** @param {{trigger: TriggerDetail, reload: () => void}} props */
function Actions({ trigger, reload }) {
  const { name, enabled, schedule } = trigger;
  const [busy, setBusy] = useState(false);
  const turn = async () => {
    setBusy(true);
    try {
      await setTriggerEnabled(name, !enabled);
      say(enabled ? "Disabled: it starts nothing." : "Enabled: it starts executions from now on.");
      reload();
    } catch (error) {
      sayProblem(error, "Not changed");
    }
    setBusy(false);
  };
  const fire = async () => {
    const started = await openDialog((/** @type {(started?: any) => void} */ close) => html`<${FireDialog} trigger=${trigger} close=${close} />`);
    if (started) navigate(to("executions", started.id));
  };
  const backfill = async () => {
    const batch = await openDialog((/** @type {(batch?: string) => void} */ close) => html`<${BackfillDialog} trigger=${trigger} close=${close} />`);
    if (batch) navigate(to("batches", batch));
  };
  const remove = async () => {
    const body = html`<p>It starts nothing any more. Executions that it has started go on, and the history stays.</p>`;
    if (!(await confirm({ title: `Delete ${name}?`, body, verb: "Delete the trigger", danger: true }))) return;
    try {
      await deleteTrigger(name);
      say("The trigger is deleted.");
      navigate("/triggers");
    } catch (error) {
      sayProblem(error, "Not deleted");
    }
  };
  return html`<button disabled=${busy} onClick=${turn}>${enabled ? "Disable" : "Enable"}</button>
    <button onClick=${fire}>Fire…</button>
    ${schedule && html`<button onClick=${backfill}>Backfill…</button>`}
    <button onClick=${() => setQuery({ tab: "edit" })}>Edit…</button>
    <${Menu} label="More" title="More for this trigger" items=${[
      { name: "Its executions", act: () => navigate("/executions", { trigger: name }) },
      { name: "Delete…", danger: true, act: remove },
    ]} />`;
}

/** @param {{trigger: TriggerDetail}} props */
function Facts({ trigger }) {
  const { schedule, event, webhook, overlap, priority, labels, skipped, skipped_at: skippedAt, input } = trigger;
  const hook = `${ROOT}v1/hooks/${encodeURIComponent(trigger.name)}`;
  /** @type {[string, any][]} */
  const facts = [
    ["Starts it", html`<code class="break"><bdi>${sourceOf(trigger)}</bdi></code>`],
    ...(webhook ? /** @type {[string, any][]} */ ([["Its URL", html`<code class="break">${hook}</code> <${CopyButton} text=${hook} what="URL copied" />`], ["Secret", html`<code>${webhook.secret}</code>`]]) : []),
    ...(event?.when ? /** @type {[string, any][]} */ ([["Only if", html`<code class="break">${event.when}</code>`]]) : []),
    ...(schedule ? /** @type {[string, any][]} */ ([["After an outage", `${schedule.catch_up} of the due times`], ...(schedule.jitter_seconds ? [["Jitter", `up to ${schedule.jitter_seconds} s`]] : [])]) : []),
    ["While one runs", overlap],
    ["Skipped starts", html`${formatCount(skipped)}${skippedAt && html`<span class="muted">, the last one <${Ago} at=${skippedAt} /></span>`}`],
    ["Priority", priority],
  ];
  return html`<section class="card stack"><h2>Trigger</h2>
    <dl class="checks">${facts.map(([name, value]) => html`<div><dt class="muted">${name}</dt><dd class="break">${value}</dd></div>`)}</dl>
    <${Labels} labels=${labels} />
    <h3>Input</h3><${JsonTree} value=${input} label="Input" />
  </section>`;
}

/** @param {{trigger: TriggerDetail}} props */
function Upcoming({ trigger }) {
  if (!trigger.schedule) return null;
  return html`<section class="card stack"><h2>Next due times</h2>
    ${trigger.upcoming.length
      ? html`<ol class="names">${trigger.upcoming.map((at) => html`<li class="row"><span class="mono">${formatTime(at)}</span> <span class="muted"><${Ago} at=${at} /></span></li>`)}</ol>`
      : html`<p class="muted">${trigger.enabled ? "There is none." : "It is disabled."}</p>`}
  </section>`;
}

/** @param {{trigger: TriggerDetail}} props */
function History({ trigger: { name, executions } }) {
  return html`<section class="stack"><div class="row"><h2 class="grow">Last executions</h2>${executions.length > 0 && html`<a href=${href("/executions", { trigger: name })}>All</a>`}</div>
    ${executions.length
      ? html`<div class="scroll-x"><table class="list"><thead><tr><th>State</th><th>Execution</th><th>Created</th><th class="number">Duration</th></tr></thead>
          <tbody>${executions.map((one) => html`<tr key=${one.id}><td><${State} name=${one.state} /></td><td class="mono"><a class="exec-id" href=${href(to("executions", one.id))} title=${one.id}>${shortId(one.id)}</a></td>
            <td><${Ago} at=${one.created_at} /></td><td class="number"><${Duration} from=${one.started_at ?? one.created_at} until=${one.finished_at} /></td></tr>`)}</tbody></table></div>`
      : html`<p class="muted">It has started none yet.</p>`}
  </section>`;
}
