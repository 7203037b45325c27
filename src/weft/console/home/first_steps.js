// What the home page shows while nothing has run: the first commands, and an example that runs by a click.

import { ROOT, sessionNow, submitExecution } from "../api.js";
import { CopyButton } from "../ui/parts.js";
import { html, useState } from "../ui/preact.js";
import { navigate, to } from "../ui/router.js";
import { sayProblem } from "../ui/toast.js";

const DEFAULT_ROOT = "http://127.0.0.1:8700/";

// In lines, because the server leaves out indentation within template strings.
const FILE = [
  "name: hello",
  "nodes:",
  `  - {id: greet, handler: echo, config: "Hello, {{ input.name | default('world') }}"}`,
  "  - {id: wait, handler: sleep, dependencies: [greet], config: {seconds: 3}}",
  `  - {id: done, handler: echo, dependencies: [wait], config: "{{ greet }}, and good-bye"}`,
].join("\n");

const EXAMPLE = {
  name: "hello",
  nodes: [
    { id: "greet", handler: "echo", config: "Hello, {{ input.name | default('world') }}" },
    { id: "wait", handler: "sleep", dependencies: ["greet"], config: { seconds: 3 } },
    { id: "done", handler: "echo", dependencies: ["wait"], config: "{{ greet }}, and good-bye" },
  ],
};

/**
 * Return the commands that store and start the example.
 * @param {{root: string, keys: boolean}} server
 */
export function firstCommands({ root, keys }) {
  const settings = [root === DEFAULT_ROOT ? "" : `export WEFT_URL=${root.replace(/\/$/, "")}\n`, keys ? "export WEFT_API_KEY=…\n" : ""].join("");
  return `${settings}cat > hello.yaml <<'END'\n${FILE}\nEND\nweft deploy hello.yaml\nweft start hello --input name=Ada --wait`;
}

export function FirstSteps() {
  const [busy, setBusy] = useState(false);
  const commands = firstCommands({ root: ROOT, keys: sessionNow().keys });
  const run = async () => {
    setBusy(true);
    try {
      const started = await submitExecution({ definition: EXAMPLE, input: { name: "Ada" } });
      navigate(to("executions", started.id), { tab: "graph" });
    } catch (error) {
      sayProblem(error, "Not started");
      setBusy(false);
    }
  };
  return html`<section class="card stack first-steps" aria-labelledby="first-title">
    <h2 id="first-title">Nothing has run here yet</h2>
    <p>Store a workflow and start it from a shell:</p>
    <div class="command-box"><pre class="command" tabindex="0" role="group" aria-label="The first commands">${commands}</pre><${CopyButton} text=${commands} label="Copy" what="Commands copied" /></div>
    <p class="row wrap">or <button class="primary" disabled=${busy} onClick=${run}>Run this example now</button>
      <span class="muted">and watch it in its graph.</span></p>
    <p>The tutorial: <code>weft docs tutorial</code>. All guides: <code>weft docs</code>.</p>
  </section>`;
}
