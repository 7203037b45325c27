// What a trigger is told by hand: to start one execution now, or one for each due time of a span.

import { backfillTrigger, fireTrigger } from "../api.js";
import { Dialog } from "../ui/dialog.js";
import { ProblemNote } from "../ui/load.js";
import { html, useMemo, useState } from "../ui/preact.js";
import { SchemaForm, filledWith, useForm } from "../ui/schema_form.js";
import { shapeOf } from "../ui/schema_shape.js";
import { formatCount, formatTime } from "../ui/time.js";
import { kindOf } from "./text.js";

/** @typedef {import("../types").Trigger} Trigger */

const MOST_SHOWN = 100;
const DAY_MS = 86_400_000;
/** What templates see in the place of what did not come. @type {Record<string, [string, any]>} */
const GIVEN = {
  event: ["event", { type: "", source: "/console", id: "by-hand", data: {} }],
  webhook: ["request", { body: {}, headers: {}, query: {} }],
};

/** @param {{trigger: Trigger, close: (started?: import("../types").Execution) => void}} props */
export function FireDialog({ trigger, close }) {
  const [name, example] = GIVEN[kindOf(trigger)] ?? [null, {}];
  const shape = useMemo(() => shapeOf({}), []);
  const { filled, setFilled, messages, problem, busy, send } = useForm(shape, () => filledWith(shape, name === "event" ? { ...example, type: trigger.event?.type } : example), name ? `/${name}` : "");
  const fire = (/** @type {Event} */ event) => send(event, async (value) => close(await fireTrigger(trigger.name, name ? { [name]: value } : {})));
  return html`<${Dialog} title=${`Start ${trigger.workflow} by ${trigger.name} now`} onClose=${() => close()} footer=${html`
    <button onClick=${() => close()}>Keep as it is</button><button class="primary" autofocus=${name === null} disabled=${busy} onClick=${fire}>Start it</button>`}>
    <p>Its due times stay as they are.</p>
    ${name && html`<p class="muted">${`Its templates see this ${name}:`}</p>
      <${SchemaForm} shape=${shape} filled=${filled} onChange=${setFilled} messages=${messages} label=${name} prefix="fire" />`}
    <${ProblemNote} problem=${problem} />
  </${Dialog}>`;
}

const SPAN = {
  type: "object", required: ["from", "to"], properties: {
    from: { type: "string", format: "date-time", title: "From", description: "In your time zone." },
    to: { type: "string", format: "date-time", title: "To" },
    max_running: { type: "integer", title: "At most so many run at once", minimum: 1 },
  },
};

/** First what would start, and then a button that starts it. @param {{trigger: Trigger, close: (batch?: string) => void}} props */
export function BackfillDialog({ trigger, close }) {
  const shape = useMemo(() => shapeOf(SPAN), []);
  const { filled, setFilled, messages, problem, busy, send } = useForm(shape, () => {
    const now = Date.now() - (Date.now() % 1000);
    return filledWith(shape, { from: timeOf(now - DAY_MS), to: timeOf(now) });
  });
  const [plan, setPlan] = useState(/** @type {{of: any, total: number, due: string[]} | null} */ (null));
  // What was counted for other values says nothing about these.
  const counted = plan?.of === filled ? plan : null;
  const count = (/** @type {Event} */ event) => send(event, async (value) => setPlan({ of: filled, ...(await backfillTrigger(trigger.name, { ...value, dry_run: true })) }));
  const start = (/** @type {Event} */ event) => send(event, async (value) => close((await backfillTrigger(trigger.name, value)).id));
  const many = counted && `${formatCount(counted.total)} ${counted.total === 1 ? "execution" : "executions"}`;
  return html`<${Dialog} title=${`Start ${trigger.workflow} for due times of a span`} wide onClose=${() => close()} footer=${html`
    <button onClick=${() => close()}>Keep as it is</button>
    <button class=${counted ? "" : "primary"} disabled=${busy} onClick=${count}>Show what would start</button>
    <button class=${counted ? "primary" : ""} disabled=${busy || !counted?.total} onClick=${start}>Start ${many ?? "…"}</button>`}>
    <${SchemaForm} shape=${shape} filled=${filled} onChange=${setFilled} messages=${messages} label="Span" prefix="span" />
    <${ProblemNote} problem=${problem} />
    <div aria-live="polite">${counted && html`<p><strong>${counted.total ? `${many} would start, for:` : "The span has no due times."}</strong></p>
      <ul class="names">${counted.due.slice(0, MOST_SHOWN).map((at) => html`<li class="mono">${formatTime(at)}</li>`)}</ul>
      ${counted.total > MOST_SHOWN && html`<p class="muted small">${`and ${formatCount(counted.total - MOST_SHOWN)} more`}</p>`}`}</div>
  </${Dialog}>`;
}

/** @param {number} at */
const timeOf = (at) => new Date(at).toISOString().replace(".000Z", "Z");
