import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { onePerExecution } from "../../../src/weft/console/dead_letters/actions.js";
import { belongs, firstLine, groupLetters, keyOf, lettersText, loadGroups, newestFirst, sumOf } from "../../../src/weft/console/dead_letters/groups.js";

const letter = (id, fields = {}) => ({
  id, execution: `e${id}`, workflow: "order", node: "fetch", error: { code: "http_status", message: "no" }, created_at: `2026-01-01T00:00:0${id}Z`, ...fields,
});

test("letters of one workflow, node and error are a group, and no others", () => {
  const others = [letter(4, { workflow: null }), letter(3, { node: "pay" }), letter(2, { error: { code: "timeout", message: "" } })];
  const groups = groupLetters([letter(6), letter(5, { execution: "e6" }), ...others, letter(1)]);
  assert.deepEqual(groups.map((group) => group.count), [3, 1, 1, 1]);
  const [first] = groups;
  assert.deepEqual([first.executions, first.first_at, first.last_at, first.sample.id], [2, letter(1).created_at, letter(6).created_at, 6]);
  assert.ok(belongs(letter(9), first));
  assert.ok(others.every((one) => !belongs(one, first)));
});

test("names cannot make two groups look like one", () => {
  const named = [["a b", "c", null], ["a", "b c", null], [null, "a", "b"], ["null", "a", "b"], ["", "a", "b"]];
  assert.equal(new Set(named.map(([workflow, node, code]) => keyOf({ workflow, node, code }))).size, named.length);
});

test("groups come with the one that failed last first", () => {
  const groups = groupLetters([letter(1), letter(3, { node: "pay" })]);
  assert.deepEqual(newestFirst(groups).map((group) => group.node), ["pay", "fetch"]);
});

test("what is not counted to its end is said to be more", () => {
  const [group] = groupLetters([letter(2), letter(1)]);
  assert.deepEqual(sumOf([group, group], false), { count: 4, executions: 4, atLeast: false });
  assert.equal(sumOf([group], true).atLeast, true);
  assert.equal(sumOf([{ ...group, count: 10_000 }], false).atLeast, true);
  assert.deepEqual([lettersText(1), lettersText(2), lettersText(10_000, true)], ["1 dead letter", "2 dead letters", "at least 10\u202f000 dead letters"]);
});

test("a message is told by its first line that says something", () => {
  assert.equal(firstLine("\n \nfirst\nsecond"), "first");
  assert.equal(firstLine("abcdef", 3), "abc…");
  assert.equal(firstLine(""), "");
});

test("an execution with several letters is retried once", () => {
  assert.deepEqual(onePerExecution([letter(1), letter(2), letter(3, { execution: "e1" })]).map((one) => one.execution), ["e1", "e2"]);
});

const { fetch } = globalThis;
afterEach(() => {
  globalThis.fetch = fetch;
});

/** A server that answers by path and query. @param {(url: URL) => [number, any]} answer */
function serve(answer) {
  /** @type {string[]} */
  const asked = [];
  globalThis.fetch = async (address) => {
    const url = new URL(String(address));
    asked.push(url.pathname.slice(url.pathname.indexOf("/v1/")) + url.search);
    const [status, body] = answer(url);
    return new Response(JSON.stringify(body), { status });
  };
  return asked;
}

test("groups are read page by page, as many as are wanted", async () => {
  const pages = { "": ["b", "p2"], p2: ["a", "p3"] };
  serve((url) => {
    const [node, next_cursor] = pages[url.searchParams.get("cursor") ?? ""];
    return [200, { items: groupLetters([letter(node === "a" ? 2 : 1, { node })]), next_cursor }];
  });
  const { groups, more, isPlain } = await loadGroups({ state: "open", workflow: null, wanted: 2 });
  assert.deepEqual([groups.map((group) => group.node), more, isPlain], [["a", "b"], true, false]);
});

test("the groups of a search are made of the letters that it finds", async () => {
  const asked = serve(() => [200, { items: [letter(2), letter(1)], next_cursor: null }]);
  const { groups, isPlain } = await loadGroups({ state: "open", workflow: null, q: "fetch", wanted: 100 });
  assert.deepEqual([groups.length, groups[0].letters.length, isPlain], [1, 2, true]);
  assert.match(asked[0], /dead-letters\?.*q=fetch/);
});
