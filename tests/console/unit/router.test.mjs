import assert from "node:assert/strict";
import { test } from "node:test";
import { href, match, parseHash, queryText, to } from "../../../src/weft/console/ui/router.js";

test("an address gives its path and its query", () => {
  const { path, query } = parseHash("#/executions/a%2Fb?tab=graph&label=a&label=b");
  assert.equal(path, "/executions/a%2Fb");
  assert.deepEqual(query.getAll("label"), ["a", "b"]);
  assert.equal(parseHash("").path, "/");
  assert.equal(parseHash("#/executions/").path, "/executions");
});

test("a pattern gives its parts decoded", () => {
  assert.deepEqual(match("/executions/:id", "/executions/a%2Fb"), { id: "a/b" });
  assert.deepEqual(match("/", "/"), {});
  assert.equal(match("/executions/:id", "/executions"), null);
  assert.equal(match("/executions/:id", "/executions/%E0%A4%A"), null);
});

test("a link encodes what users named", () => {
  assert.equal(href(to("workflows", "a/b c"), { q: "x&y", none: null, list: ["1", "2"] }), "#/workflows/a%2Fb%20c?q=x%26y&list=1&list=2");
  assert.equal(queryText({}), "");
});
