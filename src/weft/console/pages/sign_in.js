// Asks for a key. The server puts it into a session cookie that scripts cannot read; the key is kept nowhere else.

import { signIn } from "../api.js";
import { ProblemNote, asProblem } from "../ui/load.js";
import { html, useEffect, useRef, useState } from "../ui/preact.js";

export const title = "Sign in";

/** @param {{onSignedIn: () => void}} props */
export function Page({ onSignedIn }) {
  const [problem, setProblem] = useState(/** @type {import("../api.js").Problem | null} */ (null));
  const [busy, setBusy] = useState(false);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => field.current?.focus(), []);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const key = field.current?.value.trim() ?? "";
    if (!key) return field.current?.focus();
    setBusy(true);
    try {
      await signIn(key);
      onSignedIn();
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
      field.current?.select();
    }
  };
  return html`<div class="page sign-in">
    <form class="card stack" onSubmit=${submit}>
      <h1>Sign in</h1>
      <label class="stack">
        <span>API key</span>
        <input ref=${field} type="password" autocomplete="current-password" spellcheck=${false} required aria-describedby="key-help" />
      </label>
      <p id="key-help" class="muted small">
        One of the keys in <code>WEFT_API_KEYS</code>; <code>weft keys new</code> makes one. This browser keeps it in a session
        cookie that no script can read, until you sign out.
      </p>
      ${problem && (problem.status === 401
        ? html`<div class="note note-danger" role="alert">This is not one of the server's keys.</div>`
        : html`<${ProblemNote} problem=${problem} />`)}
      <button class="primary" type="submit" disabled=${busy}>Sign in</button>
    </form>
  </div>`;
}
