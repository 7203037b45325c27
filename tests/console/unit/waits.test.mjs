import assert from "node:assert/strict";
import { test } from "node:test";
import { answerOf, keysOf, optionsOf } from "../../../src/weft/console/waits/question.js";
import { filledWith, readForm } from "../../../src/weft/console/ui/schema_form.js";
import { shapeOf } from "../../../src/weft/console/ui/schema_shape.js";

const optionsFor = (/** @type {any} */ schema) => optionsOf(shapeOf(schema));

test("few answers are options, and the rest is a form", () => {
  assert.deepEqual(optionsFor({ enum: ["approve", "reject"] }), [{ draft: "0", name: "approve" }, { draft: "1", name: "reject" }]);
  assert.deepEqual(optionsFor({ type: "boolean" }), [{ draft: "true", name: "yes" }, { draft: "false", name: "no" }]);
  assert.deepEqual(optionsFor({ oneOf: [{ const: 1, title: "one" }, { const: 2 }] }), [{ draft: "0", name: "one" }, { draft: "1", name: "2" }]);
  for (const schema of [{ enum: [..."abcdefghij"] }, { type: "string" }, { type: "object", properties: { a: {} } }, true]) assert.equal(optionsFor(schema), null);
});

test("a approves and x rejects, whatever the order; three answers are numbered", () => {
  const keys = (/** @type {string[]} */ ...names) => keysOf(names.map((name) => ({ name })));
  assert.deepEqual(keys("approve", "reject"), ["a", "x"]);
  assert.deepEqual(keys("reject", "approve"), ["x", "a"]);
  assert.deepEqual(keys("no", "yes"), ["x", "a"]);
  assert.deepEqual(keys("Decline", "Accept"), ["x", "a"]);
  assert.deepEqual(keys("red", "green"), ["a", "x"]);
  assert.deepEqual(keys("normal", "high"), ["a", "x"]);
  assert.deepEqual(keys("reject", "deny"), ["a", "x"]);
  assert.deepEqual(keys("a", "b", "c"), ["1", "2", "3"]);
  assert.deepEqual(keys(), []);
});

test("what is chosen is sent as the schema has it", () => {
  const read = (/** @type {any} */ schema, /** @type {any} */ draft) => readForm(shapeOf(schema), { draft, json: null });
  assert.deepEqual(read({ enum: ["approve", { by: 1 }] }, "1"), { value: { by: 1 }, problems: [] });
  assert.deepEqual(read({ type: "boolean" }, "false"), { value: false, problems: [] });
  assert.deepEqual(read({ enum: ["a", "b"] }, "").problems.map((one) => one.pointer), [""]);
});

test("an answer that is no object has a field, and one that may be anything is JSON", () => {
  const number = shapeOf({ type: "integer" });
  const filled = filledWith(number, undefined, "");
  assert.deepEqual(filled, { draft: "", json: null });
  assert.deepEqual(readForm(number, filled).problems.length, 1);
  assert.deepEqual(readForm(number, { draft: "7", json: null }), { value: 7, problems: [] });
  const anything = shapeOf(true);
  assert.deepEqual(filledWith(anything, undefined, ""), { draft: "", json: "" });
  assert.deepEqual(filledWith(anything).json, "{}");
  assert.deepEqual(readForm(anything, { draft: "", json: "[1]" }), { value: [1], problems: [] });
  assert.match(readForm(anything, filledWith(anything, undefined, "")).problems[0].message, /not JSON/);
});

test("how a wait ended is known of an answer, an event and an expiry, and not of a time", () => {
  const node = (/** @type {any} */ output, fields = {}) => /** @type {any} */ ({ handler: "wait", state: "COMPLETED", output, ...fields });
  const answer = { value: "approve", by: "ann", at: "2026-01-31T09:00:00Z", expired: false };
  assert.deepEqual(answerOf(node(answer)), answer);
  assert.ok(answerOf(node({ ...answer, value: null, by: null, expired: true })));
  assert.equal(answerOf(node({ ...answer, value: null, by: null })), null);
  assert.equal(answerOf(node(answer, { handler: "echo" })), null);
  assert.equal(answerOf(node(undefined, { state: "FAILED" })), null);
  assert.equal(answerOf(null), null);
});
