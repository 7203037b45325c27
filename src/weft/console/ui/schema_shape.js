// What a form has for a JSON Schema, and how what was typed becomes JSON. No DOM here: ui/schema_form.js draws it.
//
// A *shape* is a field: its kind, and what it may hold. A *draft* is what its control holds: text as typed, the index
// of a choice, an object of drafts. So nothing that is typed is lost while it is not yet valid. What the form has no
// control for is a field of JSON text: the form never refuses a schema, and the server checks every input again.

/**
 * @typedef {"text" | "longtext" | "number" | "integer" | "boolean" | "choice" | "choices" | "lines" | "date" | "datetime" | "object" | "json"} Kind
 * @typedef {{name: string, shape: Shape, required: boolean}} Field
 * @typedef {{kind: Kind, title: string, about: string, nullable: boolean, preset?: any, example?: any,
 *   choices: {value: any, name: string}[], fields: Field[], schema: Record<string, any>}} Shape
 * @typedef {{pointer: string, message: string, missing?: boolean}} Finding `missing`: there is no value at all
 */

const DEEPEST = 6;
const MOST_FIELDS = 300;
const LONG_TEXT = 200;
const NEEDED = "A value is needed here.";

/**
 * Return the shape of a schema.
 * @param {any} schema @param {any} [root] the schema that `$ref`s are places of @param {number} [depth]
 * @returns {Shape}
 */
export function shapeOf(schema, root = schema, depth = 0) {
  const { resolved, nullable } = resolve(schema, root);
  /** @type {Shape} */
  const shape = {
    kind: "json", title: textOf(resolved.title), about: textOf(resolved.description), nullable, preset: resolved.default,
    example: Array.isArray(resolved.examples) ? resolved.examples[0] : undefined, choices: [], fields: [], schema: resolved,
  };
  const choices = choicesOf(resolved);
  if (choices) return { ...shape, kind: "choice", choices };
  const type = typeOf(resolved);
  if (type === "string") return { ...shape, kind: kindOfText(resolved) };
  if (type === "number" || type === "integer" || type === "boolean") return { ...shape, kind: type };
  if (type === "array") return { ...shape, ...shapeOfList(resolved, root) };
  if (type === "object" && depth < DEEPEST) return { ...shape, ...shapeOfObject(resolved, root, depth) };
  return shape;
}

/** @param {Record<string, any>} schema @param {any} root @param {number} depth @returns {Partial<Shape>} */
function shapeOfObject(schema, root, depth) {
  const properties = isObject(schema.properties) ? Object.entries(schema.properties) : [];
  const joined = ["oneOf", "anyOf", "allOf", "$ref"].some((word) => word in schema);
  if (!properties.length || properties.length > MOST_FIELDS || joined) return {};
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = properties.map(([name, one]) => ({ name, shape: shapeOf(one, root, depth + 1), required: required.has(name) }));
  return { kind: "object", fields };
}

/** @param {Record<string, any>} schema @param {any} root @returns {Partial<Shape>} */
function shapeOfList(schema, root) {
  if (!isObject(schema.items) || schema.prefixItems) return {};
  const { resolved, nullable } = resolve(schema.items, root);
  const choices = choicesOf(resolved);
  if (choices && schema.uniqueItems === true) return { kind: "choices", choices };
  // A line of text is one item; what may hold line feeds, or null, is JSON.
  return typeOf(resolved) === "string" && !choices && !nullable ? { kind: "lines" } : {};
}

/** @param {Record<string, any>} schema @returns {Kind} */
function kindOfText({ format, maxLength }) {
  if (format === "date") return "date";
  if (format === "date-time") return "datetime";
  return maxLength > LONG_TEXT || format === "multiline" ? "longtext" : "text";
}

/**
 * Return a schema with its references followed, and whether null fits it beside something else.
 * @param {any} schema @param {any} root
 */
function resolve(schema, root) {
  let resolved = isObject(schema) ? schema : {};
  let nullable = false;
  for (let turn = 0; turn < 10; turn++) {
    const several = resolved.anyOf ?? resolved.oneOf;
    /** @type {any} */
    let inner = null;
    if (typeof resolved.$ref === "string") inner = at(root, resolved.$ref);
    else if (Array.isArray(resolved.allOf) && resolved.allOf.length === 1) inner = resolved.allOf[0];
    else if (Array.isArray(several) && several.length === 2 && several.some((one) => one?.type === "null")) {
      inner = several.find((one) => one?.type !== "null");
      nullable = true;
    }
    if (!isObject(inner)) break;
    const { $ref, allOf, anyOf, oneOf, ...own } = resolved;
    resolved = { ...inner, ...own };
  }
  const types = resolved.type;
  if (Array.isArray(types) && types.length === 2 && types.includes("null")) {
    nullable = true;
    resolved = { ...resolved, type: types.find((one) => one !== "null") };
  }
  return { resolved, nullable };
}

/** Return the place of a root that a local reference names. @param {any} root @param {string} reference */
function at(root, reference) {
  if (!reference.startsWith("#")) return null;
  let place = root;
  for (const part of reference.slice(1).split("/").slice(1)) {
    const name = part.replace(/~1/g, "/").replace(/~0/g, "~");
    place = isObject(place) && Object.hasOwn(place, name) ? place[name] : Array.isArray(place) ? place[Number(name)] : null;
  }
  return place;
}

/** @param {Record<string, any>} schema */
function choicesOf(schema) {
  if (Array.isArray(schema.enum)) return schema.enum.map((value) => ({ value, name: nameOf(value) }));
  const several = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(several) || !several.length || !several.every((one) => isObject(one) && "const" in one)) return null;
  return several.map((one) => ({ value: one.const, name: textOf(one.title) || nameOf(one.const) }));
}

/** @param {Record<string, any>} schema @returns {unknown} */
function typeOf(schema) {
  return schema.type ?? (isObject(schema.properties) ? "object" : undefined);
}

/** @param {any} value */
function nameOf(value) {
  return typeof value === "string" && value !== "" ? value : JSON.stringify(value);
}

/**
 * Return the draft of a value; of undefined, that of the defaults.
 * @param {Shape} shape @param {any} [value] @returns {any}
 */
export function draftOf(shape, value) {
  const shown = value === undefined ? shape.preset : value;
  const given = shown !== undefined && shown !== null;
  switch (shape.kind) {
    case "object": {
      const from = isObject(shown) ? shown : {};
      const names = new Set(shape.fields.map((field) => field.name));
      return {
        fields: Object.fromEntries(shape.fields.map(({ name, shape: inner }) => {
          // A value that was given is shown as it is: what it leaves out is not put in again.
          if (!Object.hasOwn(from, name) && value !== undefined) return [name, blank(inner)];
          return [name, draftOf(inner, Object.hasOwn(from, name) ? from[name] : undefined)];
        })),
        rest: Object.fromEntries(Object.entries(from).filter(([name]) => !names.has(name))),
      };
    }
    case "boolean":
      return given ? String(shown) : "";
    case "choice": {
      const index = shown === undefined ? -1 : shape.choices.findIndex((choice) => equal(choice.value, shown));
      return index < 0 ? "" : String(index);
    }
    case "choices":
      return (Array.isArray(shown) ? shown : []).map((one) => shape.choices.findIndex((choice) => equal(choice.value, one))).filter((i) => i >= 0);
    case "lines":
      return Array.isArray(shown) ? shown.map(String).join("\n") : "";
    case "datetime":
      return given ? localTime(String(shown)) : "";
    case "json":
      return shown === undefined ? "" : JSON.stringify(shown, null, 2);
    default:
      return given ? String(shown) : "";
  }
}

/** @param {Shape} shape @returns {any} */
function blank(shape) {
  return draftOf({ ...shape, preset: undefined }, shape.kind === "object" ? {} : undefined);
}

/**
 * Return the JSON of a draft, and what is wrong in it. The value undefined: the field is left out.
 * @param {Shape} shape @param {any} draft @param {string} [pointer] @param {boolean} [required]
 * @returns {{value: any, problems: Finding[]}}
 */
export function readDraft(shape, draft, pointer = "", required = false) {
  if (shape.kind === "object") return readObject(shape, draft, pointer, required);
  const empty = draft === "" || (Array.isArray(draft) && !draft.length) || (typeof draft === "string" && shape.kind !== "text" && draft.trim() === "");
  if (empty) {
    if (!required) return { value: undefined, problems: [] };
    if (shape.kind === "choices" || shape.kind === "lines") return { value: [], problems: [] };
    if (shape.nullable) return { value: null, problems: [] };
    return { value: undefined, problems: [{ pointer, message: NEEDED, missing: true }] };
  }
  return readGiven(shape, draft, pointer);
}

/** @param {Shape} shape @param {any} draft @param {string} pointer @param {boolean} required */
function readObject(shape, draft, pointer, required) {
  /** @type {Record<string, any>} */
  const value = Object.create(null);
  Object.assign(value, draft.rest);
  /** @type {Finding[]} */
  const problems = [];
  for (const { name, shape: inner, required: needed } of shape.fields) {
    const read = readDraft(inner, draft.fields[name], `${pointer}/${escaped(name)}`, needed);
    if (read.value !== undefined) value[name] = read.value;
    problems.push(...read.problems);
  }
  // An optional object is left out, with what it would need, unless something was filled in beside its fields' defaults.
  const wrong = problems.filter((one) => !one.missing);
  const untouched = !Object.keys(value).length || (shape.preset === undefined && equal(draft, draftOf(shape)));
  if (!required && pointer !== "" && untouched) return { value: undefined, problems: wrong };
  return { value, problems };
}

/** @param {Shape} shape @param {any} draft not empty @param {string} pointer @returns {{value: any, problems: Finding[]}} */
function readGiven(shape, draft, pointer) {
  const wrong = (/** @type {string} */ message) => ({ value: undefined, problems: [{ pointer, message }] });
  const right = (/** @type {any} */ value) => ({ value, problems: [] });
  switch (shape.kind) {
    case "number":
    case "integer": {
      const number = Number(draft.trim());
      if (!/\d/.test(draft) || !Number.isFinite(number)) return wrong("This is not a number.");
      if (shape.kind === "integer" && !Number.isInteger(number)) return wrong("This is not a whole number.");
      if (Number.isInteger(number) && !Number.isSafeInteger(number)) return wrong("This number is too large for a browser to keep exactly; start the execution with weft start.");
      return right(number);
    }
    case "boolean":
      return right(draft === "true");
    case "choice":
      return right(shape.choices[Number(draft)]?.value);
    case "choices":
      return right([...draft].sort((a, b) => a - b).map((/** @type {number} */ i) => shape.choices[i].value));
    case "lines":
      return right(draft.split(/\r?\n/).filter((/** @type {string} */ line) => line !== ""));
    case "datetime": {
      const time = new Date(draft);
      return Number.isNaN(time.getTime()) ? wrong("This is not a date and a time.") : right(time.toISOString().replace(".000Z", "Z"));
    }
    case "json":
      try {
        return right(JSON.parse(draft));
      } catch (error) {
        return wrong(`This is not JSON: ${/** @type {Error} */ (error).message}`);
      }
    default:
      return right(draft);
  }
}

/**
 * Return the draft that shows a value exactly; null: the form would change the value.
 * @param {Shape} shape @param {any} value
 */
export function exactDraft(shape, value) {
  const draft = draftOf(shape, value);
  return equal(readDraft(shape, draft).value, value) ? draft : null;
}

/**
 * Return the messages by the pointer of the field where each is shown: the field itself, or the nearest one around it.
 * What belongs to no field is at "".
 * @param {Shape} shape @param {readonly Finding[]} findings @returns {Map<string, string[]>}
 */
export function placeFindings(shape, findings) {
  const known = new Set(pointersOf(shape, ""));
  /** @type {Map<string, string[]>} */
  const placed = new Map();
  for (const { pointer, message } of findings) {
    const missing = /^"(.*)" is a required property$/.exec(message);
    let place = missing ? `${pointer}/${escaped(missing[1])}` : pointer;
    while (place && !known.has(place)) place = place.slice(0, Math.max(0, place.lastIndexOf("/")));
    const said = missing && known.has(`${pointer}/${escaped(missing[1])}`) ? NEEDED : message;
    // A field that stands for what is below it says where below.
    const within = pointer.slice(place.length);
    const text = within && !missing ? `${within}: ${said}` : said;
    placed.set(place, [...(placed.get(place) ?? []), text]);
  }
  return placed;
}

/** @param {Shape} shape @param {string} pointer @returns {string[]} */
function pointersOf(shape, pointer) {
  return [pointer, ...shape.fields.flatMap((field) => pointersOf(field.shape, `${pointer}/${escaped(field.name)}`))];
}

/** Return a name as a part of a JSON pointer. @param {string} name */
export function escaped(name) {
  return name.replace(/~/g, "~0").replace(/\//g, "~1");
}

/** Return a time as a control of the browser has it, in the reader's zone. @param {string} at */
function localTime(at) {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return "";
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** True if two values are the same JSON. @param {any} a @param {any} b @returns {boolean} */
export function equal(a, b) {
  if (Object.is(a, b)) return true;
  if (a === null || b === null || typeof a !== "object" || typeof b !== "object" || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && equal(a[key], b[key]));
}

/** @param {any} value @returns {value is Record<string, any>} */
function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** @param {any} value */
function textOf(value) {
  return typeof value === "string" ? value : "";
}
