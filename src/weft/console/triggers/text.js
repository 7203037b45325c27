// Triggers in words, and the schema of the form that writes them. No DOM here.

/** @typedef {import("../types").Trigger} Trigger */
/** @typedef {"schedule" | "event" | "webhook"} Kind */

/** @type {Kind[]} */
export const KINDS = ["schedule", "event", "webhook"];

/** @param {Record<string, any>} trigger @returns {Kind} */
export const kindOf = (trigger) => KINDS.find((kind) => trigger[kind]) ?? "schedule";

/** Return what starts a trigger, in a few words. @param {Trigger} trigger */
export function sourceOf({ schedule, event, webhook }) {
  if (event) return `event ${event.type}`;
  if (webhook) return `webhook (${webhook.scheme})`;
  if (!schedule) return "";
  return schedule.cron ? `${schedule.cron}${schedule.timezone && schedule.timezone !== "UTC" ? ` ${schedule.timezone}` : ""}` : `every ${schedule.every_seconds} s`;
}

/** @type {Record<Kind, Record<string, any>>} */
const SOURCES = {
  schedule: {
    type: "object", title: "Schedule", description: "Either a cron expression or a number of seconds.", properties: {
      cron: { type: "string", title: "Cron", description: "Five fields, or six that begin with the seconds.", examples: ["0 3 * * *"] },
      every_seconds: { type: "number", title: "Every so many seconds" },
      timezone: { type: "string", title: "Time zone of cron", examples: ["UTC"] },
      catch_up: { enum: ["none", "latest", "all"], title: "Due times that an outage has left", default: "latest" },
      jitter_seconds: { type: "number", title: "Jitter in seconds" },
    },
  },
  event: {
    type: "object", title: "Event", required: ["type"], properties: {
      type: { type: "string", title: "Type" },
      when: { type: "string", title: "Only if", examples: ["event.data.station == 7"] },
    },
  },
  webhook: {
    type: "object", title: "Webhook", required: ["secret"], properties: {
      secret: { type: "string", title: "Name of its secret", description: "NAME is WEFT_SECRET_NAME." },
      scheme: { enum: ["token", "github", "stripe"], title: "Signature", default: "token" },
    },
  },
};
/** What templates see. @type {Record<Kind, string>} */
const SEEN = { schedule: "trigger.due_at", event: "event.data", webhook: "request.body" };

/**
 * Return the JSON Schema of a trigger's form.
 * @param {Kind} kind @param {{workflows: string[], named: boolean}} options `named`: it has no name yet
 */
export function schemaOf(kind, { workflows, named }) {
  return {
    type: "object",
    required: ["workflow", kind, ...(named ? ["name"] : [])],
    properties: {
      ...(named ? { name: { type: "string", title: "Name" } } : {}),
      workflow: workflows.length ? { enum: workflows, title: "Workflow" } : { type: "string", title: "Workflow" },
      version: { type: "string", title: "Version", description: "A number or an alias.", default: "latest" },
      [kind]: SOURCES[kind],
      input: { title: "Input", description: `JSON with templates, which see {{ ${SEEN[kind]} }}.`, default: {} },
      labels: { type: "object", title: "Labels", default: {} },
      priority: { enum: ["high", "normal", "low"], title: "Priority", default: "normal" },
      overlap: { enum: ["allow", "skip", "queue", "cancel_running"], title: "While one of its executions runs", default: "allow" },
      enabled: { type: "boolean", title: "Enabled", default: true },
    },
  };
}

/** Return a stored trigger as its form has it. @param {Trigger} trigger */
export function writtenOf(trigger) {
  const kind = kindOf(trigger);
  const { workflow, input, labels, priority, overlap, enabled } = trigger;
  const source = Object.fromEntries(Object.entries(trigger[kind] ?? {}).filter(([, value]) => value !== null));
  return { workflow, version: String(trigger.version), [kind]: source, input, labels, priority, overlap, enabled };
}

/** Return what a form says as the API takes it: a version of digits is a number. @param {Record<string, any>} written */
export function sentOf({ version, ...rest }) {
  return version === undefined ? rest : { ...rest, version: /^\d+$/.test(version) ? Number(version) : version };
}
