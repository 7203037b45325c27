import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { asCommand, asCurl, asPython, pythonLiteral, shellQuoted } from "../../../src/weft/console/execution/copy.js";
import { rowsOf } from "../../../src/weft/console/execution/log_view.js";
import { neighboursOf } from "../../../src/weft/console/execution/node_sheet.js";
import { fittingNodes } from "../../../src/weft/console/execution/tab_nodes.js";
import { lineOf } from "../../../src/weft/console/execution/tab_events.js";
import { fit } from "../../../src/weft/console/ui/palette.js";
import { visible } from "../../../src/weft/console/ui/json_tree.js";

const root = "http://127.0.0.1:8791/";
const started = { workflow: "order", version: 3, input: { "it's": ["$HOME", 1, null] }, labels: { team: "a b" }, priority: "high" };

test("what a user named stays one word of a shell", () => {
  for (const text of ["plain", "it's", "a b", "$(id)", "`x`", "a\nb", "", "'"]) {
    assert.equal(execFileSync("sh", ["-c", `printf %s ${shellQuoted(text)}`]).toString(), text);
  }
});

test("an execution can be copied as curl, as a command and as Python", () => {
  const curl = asCurl(started, { root, keys: true });
  assert.match(curl, /-H "Authorization: Bearer \$WEFT_API_KEY"/);
  const shell = execFileSync("sh", ["-c", `curl() { printf '%s\\n' "$@"; }; ${curl}`]).toString().split("\n");
  assert.deepEqual(JSON.parse(shell[shell.indexOf("-d") + 1]), { input: started.input, version: 3, labels: { team: "a b" }, priority: "high" });
  const command = asCommand(started, { root });
  assert.match(command, /WEFT_URL=http:\/\/127\.0\.0\.1:8791 weft start order --version 3 --label 'team=a b' --priority high --input-file -$/);
  assert.equal(asCommand({ workflow: "order", version: null, input: {} }, { root: "http://127.0.0.1:8700/" }), "weft start order");
  assert.match(asPython(started, { root }), /client\.start\("order", \{"it's": \["\$HOME", 1, None\]\}, version=3, labels=\{"team": "a b"\}, priority="high"\)/);
  assert.equal(pythonLiteral([true, false, null, 1.5, "\n"]), '[True, False, None, 1.5, "\\n"]');
});

test("each line of a logged text is a row, without the escapes of terminals", () => {
  const rows = rowsOf({ seq: 1, at: "", node: "a", attempt: 1, stream: "stdout", level: null, logger: null, message: "\u001b[31mred\u001b[0m\r\nnext \u202e\u0007\n" });
  assert.deepEqual(rows.map((row) => [row.text, row.first]), [["red", true], ["next \\u202e\\u0007", false]]);
});

test("what cannot be seen is written out", () => {
  assert.equal(visible("a\u0000b\u200fc\ud83d\ude00\n\t"), "a\\u0000b\\u200fc\ud83d\ude00\n\t");
});

const topology = { nodes: ["fetch", "price", "stock", "decide"], handlers: ["python", "echo"], handler: [0, 0, 1, 0], from: [0, 0, 1, 2], to: [1, 2, 3, 3] };

test("nodes are found by state, name and handler", () => {
  const states = Uint8Array.from([3, 4, 3, 0]);
  assert.deepEqual(fittingNodes(topology, states, { codes: [], text: "" }), [0, 1, 2, 3]);
  assert.deepEqual(fittingNodes(topology, states, { codes: [3], text: "ECHO" }), [2]);
  assert.deepEqual(fittingNodes(topology, states, { codes: [4, 0], text: "ci" }), [3]);
});

test("a node has its neighbours on both sides", () => {
  assert.deepEqual(neighboursOf(topology, "price"), { before: [0], after: [3] });
  assert.deepEqual(neighboursOf(topology, "decide"), { before: [1, 2], after: [] });
});

test("an event is told in a line", () => {
  const error = { code: "handler_error", message: "no\nmore", retryable: true, details: {} };
  assert.equal(lineOf({ error, worker: "w1", reason: "x" }), "x · handler_error: no · on w1");
});

test("the palette finds every word, and beginnings first", () => {
  assert.equal(fit("Dead letters", "work"), 0);
  assert.ok(fit("Workers", "wo") > fit("Network", "wo"));
  assert.ok(fit("order-report", "report order") > 0);
});
