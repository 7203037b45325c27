import assert from "node:assert/strict";
import { test } from "node:test";
import { draftOf, equal, exactDraft, placeFindings, readDraft, shapeOf } from "../../../src/weft/console/ui/schema_shape.js";
import { filledWith, readForm } from "../../../src/weft/console/ui/schema_form.js";
import { readLabels, splitFindings } from "../../../src/weft/console/workflow/start.js";

const SCHEMA = {
  type: "object",
  required: ["customer", "mode"],
  properties: {
    customer: { type: "string", title: "Customer" },
    note: { type: "string", maxLength: 5000 },
    total: { type: "number", default: 1.5 },
    count: { type: "integer" },
    urgent: { type: "boolean" },
    mode: { enum: ["fast", 2, null] },
    parts: { type: "array", uniqueItems: true, items: { enum: ["a", "b", "c"] } },
    tags: { type: "array", items: { type: "string" } },
    due: { type: "string", format: "date" },
    at: { type: "string", format: "date-time" },
    zip: { type: ["string", "null"] },
    owner: { anyOf: [{ $ref: "#/$defs/owner" }, { type: "null" }] },
    "a/b": { type: "integer" },
    extra: {},
  },
  $defs: { owner: { type: "object", required: ["name"], properties: { name: { type: "string" }, city: { type: "string", default: "Bern" } } } },
};
const SHAPE = shapeOf(SCHEMA);
/** @param {Record<string, any>} fields typed over what the form opens with */
const typed = (fields) => {
  const draft = draftOf(SHAPE);
  return { ...draft, fields: { ...draft.fields, ...fields } };
};
const plain = (/** @type {any} */ value) => JSON.parse(JSON.stringify(value));

test("each kind of schema has its field", () => {
  const kinds = Object.fromEntries(SHAPE.fields.map((field) => [field.name, field.shape.kind]));
  assert.deepEqual(kinds, {
    customer: "text", note: "longtext", total: "number", count: "integer", urgent: "boolean", mode: "choice", parts: "choices",
    tags: "lines", due: "date", at: "datetime", zip: "text", owner: "object", "a/b": "integer", extra: "json",
  });
});

test("what has no field of its own is JSON", () => {
  const kinds = [true, {}, { type: "object" }, { type: ["string", "integer"] }, { oneOf: [{ type: "string" }, { type: "integer" }] },
    { type: "array", items: { type: "object" } }, { type: "array", items: { enum: [1] } }, { $ref: "#/$defs/none" },
    { type: "object", properties: { a: {} }, oneOf: [{}, {}] }].map((schema) => shapeOf(schema).kind);
  assert.deepEqual([...new Set(kinds)], ["json"]);
});

test("a schema that refers to itself ends in JSON", () => {
  const tree = { $ref: "#/$defs/node", $defs: { node: { type: "object", properties: { next: { $ref: "#/$defs/node" } } } } };
  let shape = shapeOf(tree);
  let depth = 0;
  while (shape.kind === "object") {
    shape = shape.fields[0].shape;
    depth++;
  }
  assert.deepEqual([shape.kind, depth], ["json", 6]);
  assert.equal(shapeOf({ $ref: "#" }).kind, "json");
});

test("the input holds what was filled in, and nothing else", () => {
  const { value, problems } = readDraft(SHAPE, typed({
    customer: "Acme", count: " 7 ", urgent: "false", mode: "2", parts: [2, 0], tags: "x\n\ny", due: "2026-01-31", "a/b": "-3", extra: '{"k": [1]}',
  }), "", true);
  assert.deepEqual(problems, []);
  assert.deepEqual(plain(value), {
    customer: "Acme", total: 1.5, count: 7, urgent: false, mode: null, parts: ["a", "c"], tags: ["x", "y"], due: "2026-01-31", "a/b": -3, extra: { k: [1] },
  });
});

test("what is missing or wrong is said at its field", () => {
  const { problems } = readDraft(SHAPE, typed({ total: "1,5", count: "1.5", "a/b": "9007199254740993", extra: "{", mode: "0" }), "", true);
  assert.deepEqual(problems.map((one) => one.pointer), ["/customer", "/total", "/count", "/a~1b", "/extra"]);
  assert.equal(problems[0].message, "A value is needed here.");
});

test("an optional object that was not touched is left out, and one that was needs what it requires", () => {
  const given = { customer: "A", mode: "0" };
  assert.equal(readDraft(SHAPE, typed(given), "", true).value.owner, undefined);
  const owner = { fields: { name: "", city: "Basel" }, rest: {} };
  assert.deepEqual(readDraft(SHAPE, typed({ ...given, owner }), "", true).problems.map((one) => one.pointer), ["/owner/name"]);
  const named = { fields: { name: "N", city: "Bern" }, rest: {} };
  assert.deepEqual(plain(readDraft(SHAPE, typed({ ...given, owner: named }), "", true).value.owner), { name: "N", city: "Bern" });
});

test("a value is shown in fields only where they do not change it", () => {
  const value = { customer: "A", mode: "fast", tags: ["x"], at: "2026-01-31T10:20:30Z", unknown: [1, { __proto__: null, a: 1 }] };
  const draft = exactDraft(SHAPE, value);
  assert.ok(draft);
  assert.ok(equal(plain(readDraft(SHAPE, draft).value), plain(value)));
  for (const wrong of [{ ...value, count: "7" }, { ...value, mode: "other" }, { ...value, tags: ["two\nlines"] }, { ...value, customer: 3 }, [], 3, null]) {
    assert.equal(exactDraft(SHAPE, wrong), null);
  }
});

test("a form of JSON text says what is not JSON", () => {
  assert.deepEqual(readForm(SHAPE, { draft: draftOf(SHAPE), json: '{"a": 1}' }), { value: { a: 1 }, problems: [] });
  assert.match(readForm(SHAPE, { draft: draftOf(SHAPE), json: "{" }).problems[0].message, /not JSON/);
  assert.equal(filledWith(shapeOf(true)).json, "{}");
  assert.equal(filledWith(SHAPE).json, null);
  assert.equal(filledWith(SHAPE, { count: "7" }).json, '{\n  "count": "7"\n}');
});

test("a name of a field may be any text", () => {
  const schema = JSON.parse('{"type": "object", "properties": {"__proto__": {"type": "integer"}, "a~b c": {"type": "string"}}}');
  const shape = shapeOf(schema);
  const draft = exactDraft(shape, JSON.parse('{"__proto__": 1, "a~b c": "x"}'));
  assert.equal(JSON.stringify(readDraft(shape, draft).value), '{"__proto__":1,"a~b c":"x"}');
});

test("a problem of the server stands at its field, or at the nearest around it", () => {
  const placed = placeFindings(SHAPE, [
    { pointer: "/parts/1", message: "not one of" },
    { pointer: "/owner", message: '"name" is a required property' },
    { pointer: "", message: "Additional properties are not allowed" },
    { pointer: "/a~1b", message: "too small" },
    { pointer: "/nowhere/deep", message: "wrong" },
  ]);
  assert.deepEqual([...placed], [
    ["/parts", ["/1: not one of"]],
    ["/owner/name", ["A value is needed here."]],
    ["", ["Additional properties are not allowed", "/nowhere/deep: wrong"]],
    ["/a~1b", ["too small"]],
  ]);
});

test("labels are lines of key=value", () => {
  assert.deepEqual(readLabels(" team = sales \nurl=http://x?a=b\n\nkind: x"), { value: { team: "sales", url: "http://x?a=b", kind: "x" }, problems: [] });
  assert.deepEqual(readLabels("=x\nnothing").problems.map((one) => one.pointer), ["/labels", "/labels"]);
});

test("what a request was refused for goes to its part of the form", () => {
  const split = splitFindings([
    { pointer: "/input/total", message: "a" }, { pointer: "/input", message: "b" }, { pointer: "/labels/k", message: "c" },
    { pointer: "/inputs", message: "d" }, { pointer: "/version", message: "e" },
  ]);
  assert.deepEqual(split.input.map((one) => one.pointer), ["/total", ""]);
  assert.deepEqual(split.labels.map((one) => one.message), ["c"]);
  assert.deepEqual(split.other.map((one) => one.message), ["d", "e"]);
});
