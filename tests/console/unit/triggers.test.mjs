import assert from "node:assert/strict";
import { test } from "node:test";
import { KINDS, kindOf, schemaOf, sentOf, sourceOf, writtenOf } from "../../../src/weft/console/triggers/text.js";
import { filledWith, readForm } from "../../../src/weft/console/ui/schema_form.js";
import { shapeOf } from "../../../src/weft/console/ui/schema_shape.js";

const COMMON = {
  name: "nightly", workflow: "report", version: "latest", enabled: true, input: { day: "{{ trigger.due_at }}" }, labels: { team: "a" },
  priority: "normal", overlap: "skip", created_at: "", changed_at: "", next_at: null, skipped: 0, skipped_at: null, error: null,
};
const STORED = {
  schedule: { ...COMMON, schedule: { cron: "0 3 * * *", timezone: "Europe/Berlin", catch_up: "latest", jitter_seconds: 0 } },
  event: { ...COMMON, version: 3, event: { type: "card.scanned", when: null } },
  webhook: { ...COMMON, enabled: false, webhook: { secret: "SHOP", scheme: "github" } },
};

test("a stored trigger is shown in the fields of its form, and sent as it was", () => {
  for (const [kind, trigger] of Object.entries(STORED)) {
    assert.equal(kindOf(trigger), kind);
    const shape = shapeOf(schemaOf(kindOf(trigger), { workflows: ["report"], named: false }));
    const filled = filledWith(shape, writtenOf(trigger));
    assert.equal(filled.json, null, "the fields show all of it");
    const { value, problems } = readForm(shape, filled);
    assert.deepEqual(problems, []);
    const { name, created_at, changed_at, next_at, skipped, skipped_at, error, ...written } = JSON.parse(JSON.stringify(trigger));
    if (kind === "event") delete written.event.when;
    assert.deepEqual(JSON.parse(JSON.stringify(sentOf(value))), written);
  }
});

test("a new trigger asks for its name, its workflow and what starts it", () => {
  for (const kind of KINDS) {
    const shape = shapeOf(schemaOf(kind, { workflows: ["report"], named: true }));
    const { problems } = readForm(shape, filledWith(shape));
    const asked = problems.map((one) => one.pointer).sort();
    assert.deepEqual(asked, { schedule: ["/name", "/workflow"], event: ["/event/type", "/name", "/workflow"], webhook: ["/name", "/webhook/secret", "/workflow"] }[kind]);
  }
});

test("what starts a trigger is said in a few words", () => {
  assert.deepEqual(Object.values(STORED).map(sourceOf), ["0 3 * * * Europe/Berlin", "event card.scanned", "webhook (github)"]);
  const every = { ...COMMON, schedule: { every_seconds: 60, catch_up: "latest", jitter_seconds: 0 } };
  assert.equal(sourceOf(every), "every 60 s");
  assert.equal(sentOf({ workflow: "w", version: "12" }).version, 12);
  assert.equal(sentOf({ workflow: "w", version: "production" }).version, "production");
  assert.equal("version" in sentOf({ workflow: "w" }), false);
});
