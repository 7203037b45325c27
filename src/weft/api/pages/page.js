// Draws /openapi.json as a page. Everything goes in as text: nothing of the document is read as HTML.

function make(tag, text, ...children) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

function table(headings, rows) {
  const head = make("tr", "", ...headings.map((heading) => make("th", heading)));
  const body = rows.map((cells) => make("tr", "", ...cells.map((cell) => make("td", cell))));
  return make("table", "", make("thead", "", head), make("tbody", "", ...body));
}

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `list of ${typeOf(schema.items) || "anything"}`;
  return [schema.type || "anything", schema.format].filter(Boolean).join(", ");
}

function examplesOf(content) {
  if (!content) return [];
  if (content.example !== undefined) return [content.example];
  return Object.values(content.examples || {}).map((example) => example.value);
}

function block(value) {
  return make("pre", typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

function drawOperation(method, path, operation) {
  const details = make("details");
  details.id = operation.operationId;
  const summary = make("summary", "", make("b", method.toUpperCase()), make("code", path));
  summary.append(make("span", operation.summary));
  details.append(summary);
  if (operation.description) details.append(make("p", operation.description));
  const parameters = operation.parameters || [];
  if (parameters.length) {
    const rows = parameters.map((one) => [
      one.name, one.in, typeOf(one.schema), one.description || (one.schema || {}).description || "",
    ]);
    details.append(make("h4", "Parameters"), table(["name", "in", "type", ""], rows));
  }
  if (operation.requestBody) {
    const types = Object.keys(operation.requestBody.content);
    details.append(make("h4", `Body: ${types.join(", ")}`));
    details.append(...examplesOf(operation.requestBody.content[types[0]]).map(block));
  }
  details.append(make("h4", "Answers"));
  for (const [status, response] of Object.entries(operation.responses)) {
    details.append(make("p", "", make("b", status), ` ${response.description.replaceAll("`", "")}`));
    const [type, content] = Object.entries(response.content || {})[0] || [];
    if (type && !type.startsWith("application/problem")) details.append(...examplesOf(content).map(block));
  }
  return details;
}

function drawSchema(name, schema) {
  const details = make("details", "", make("summary", "", make("code", name), make("span", schema.description)));
  const required = new Set(schema.required || []);
  const rows = Object.entries(schema.properties || {}).map(([field, of]) => [
    required.has(field) ? field : `${field} ?`, typeOf(of), of.description || "",
  ]);
  if (rows.length) details.append(table(["field", "type", ""], rows));
  return details;
}

function problemsOf(document_) {
  const found = new Map();
  for (const path of Object.values(document_.paths)) {
    for (const operation of Object.values(path)) {
      for (const response of Object.values(operation.responses)) {
        for (const one of examplesOf((response.content || {})["application/problem+json"])) {
          found.set(one.code, one);
        }
      }
    }
  }
  return [...found.values()].sort((a, b) => a.status - b.status);
}

function draw(document_) {
  const contents = document.getElementById("contents");
  contents.append(make("p", document_.info.description.replaceAll("`", "")));
  for (const tag of document_.tags) {
    const operations = Object.entries(document_.paths).flatMap(([path, methods]) =>
      Object.entries(methods)
        .filter(([, operation]) => (operation.tags || []).includes(tag.name))
        .map(([method, operation]) => drawOperation(method, path, operation)));
    if (operations.length) contents.append(make("h2", tag.name), make("p", tag.description), ...operations);
  }
  contents.append(make("h2", "Problems"));
  for (const one of problemsOf(document_)) {
    const details = make("details", "", make("summary", "", make("b", String(one.status)), make("code", one.code)));
    details.id = `problem-${one.code}`;
    details.append(make("p", one.title), block(one));
    contents.append(details);
  }
  contents.append(make("h2", "Shapes"));
  for (const [name, schema] of Object.entries(document_.components.schemas)) contents.append(drawSchema(name, schema));
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target) {
    target.open = true;
    target.scrollIntoView();
  }
}

fetch("/openapi.json")
  .then((response) => response.json())
  .then(draw)
  .catch((error) => document.getElementById("contents").append(make("p", `It could not be drawn: ${error}`)));
