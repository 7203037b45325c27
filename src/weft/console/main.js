// The shell of the console: navigation, routes, palette, keys, theme, and who is signed in.
//
// How a page is made. A page is one module in pages/, named in ROUTES below and loaded when it is first opened:
//
//     export const title = "Workflows";                 // of the browser's tab; or (params) => string
//     export function Page({ params, query }) {          // a preact component
//       const { data, problem, reload } = useLoad((signal) => listWorkflows({ limit: 100 }, signal), [], { every: 5000 });
//       if (problem && !data) return html`<${ProblemNote} problem=${problem} retry=${reload} />`;
//       if (!data) return html`<${Loading} />`;
//       return html`<${PageHeader} title="Workflows" /> …`;
//     }
//
// `params` are the named parts of the route's pattern, decoded: {id} of "/executions/:id". `query` is a
// URLSearchParams. What a page shows is in the address alone: change it with `setQuery({state: "FAILED"})`, go
// elsewhere with `navigate(to("executions", id))`, link with `href(to("workflows", name), {version: 2})` (ui/router.js).
//
// What ui/ has:
//   preact.js        html, useState, useEffect, useMemo, useRef, …: import preact from here alone
//   router.js        href, to, navigate, setQuery, usePlace
//   load.js          useLoad (call, call again every so often while seen, keep the last answer), ProblemNote, Note, Empty, Loading
//   parts.js         PageHeader, Tabs, Menu, CopyButton, copyText, ProgressBar, Labels, Counts, shortId
//   states.js        STATES (code, letter, name, word, sign, css), State (sign and word), stateOf, isTerminal
//   time.js          Ago, Duration, Countdown, useNow, formatSeconds, formatTime, formatCount, formatBytes
//   virtual_list.js  VirtualList: a list of any length with rows of one height
//   dialog.js        Dialog, openDialog, confirm({title, body, verb, danger}) -> Promise<boolean>
//   toast.js         say(text), sayProblem(error, "What was tried")
//   keys.js          useKeys("Group", {"n": ["what it does", act]}); `?` lists them
//   palette.js       useCommands(() => [{name, hint, act}]) adds to Ctrl-K while the page is shown
//   icons.js         Icon({name})
//   json_tree.js     JsonTree({value, label}), visible(text): control characters written out
//   theme.js         shownTheme(); the window has an event "themechange"
//
// Every call is a function of api.js, and throws a `Problem` ({status, code, detail, problems, isMissing}).
// Colours and sizes are variables of styles/tokens.css; styles/pages.css is for the pages' own classes. The content
// security policy refuses style="…" in markup and inline scripts: use classes, or `style=${{width: "4px"}}`, which sets
// properties by script. Text from users is put into `html` as a value, never as markup; ids and names are wrapped in <bdi>.

import { loadSession, sessionNow, signOut, whenSignedOut } from "./api.js";
import { Dialog, openDialog } from "./ui/dialog.js";
import { Icon } from "./ui/icons.js";
import { keysInUse, listenForKeys, useKeys } from "./ui/keys.js";
import { Loading, ProblemNote, asProblem } from "./ui/load.js";
import { openPalette, useCommands } from "./ui/palette.js";
import { html, render, useEffect, useErrorBoundary, useState } from "./ui/preact.js";
import { href, match, navigate, place, usePlace } from "./ui/router.js";
import { sayProblem } from "./ui/toast.js";
import { chooseTheme, shownTheme, toggleTheme } from "./ui/theme.js";

/** @typedef {{title?: string | ((params: Record<string, string>) => string), Page: any}} PageModule */

/** Each page: the pattern of its path, and its module. @type {[string, () => Promise<PageModule>][]} */
const ROUTES = [
  ["/", () => load("./pages/home.js")],
  ["/executions", () => load("./pages/executions.js")],
  ["/executions/:id", () => load("./pages/execution.js")],
  ["/workflows", () => load("./pages/workflows.js")],
  ["/workflows/:name", () => load("./pages/workflow.js")],
  ["/batches", () => load("./pages/batches.js")],
  ["/batches/:id", () => load("./pages/batch.js")],
  ["/waits", () => load("./pages/inbox.js")],
  ["/waits/:execution/:node", () => load("./pages/question.js")],
  ["/triggers", () => load("./pages/triggers.js")],
  ["/triggers/:name", () => load("./pages/trigger.js")],
  ["/dead-letters", () => load("./pages/dead_letters.js")],
  ["/workers", () => load("./pages/workers.js")],
  ["/about", () => load("./pages/about.js")],
  ["/sign-in", () => load("./pages/sign_in.js")],
];

/** The navigation: name, path, the key behind `g`, icon. @type {[string, string, string, string][]} */
const PLACES = [
  ["Home", "/", "h", "home"],
  ["Executions", "/executions", "e", "executions"],
  ["Workflows", "/workflows", "w", "workflows"],
  ["Inbox", "/waits", "i", "inbox"],
  ["Triggers", "/triggers", "t", "triggers"],
  ["Batches", "/batches", "b", "batches"],
  ["Dead letters", "/dead-letters", "d", "dead_letters"],
  ["Workers", "/workers", "k", "workers"],
  ["About", "/about", "a", "about"],
];

const EVERYWHERE = "Everywhere";

/** @param {string} path @returns {Promise<PageModule>} */
function load(path) {
  return import(path);
}

/** Return the page of a path; null: there is none. @param {string} path */
function routeOf(path) {
  for (const [pattern, module] of ROUTES) {
    const params = match(pattern, path);
    if (params) return { pattern, module, params };
  }
  return null;
}

function App() {
  const { path, query } = usePlace();
  const [signedOut, setSignedOut] = useState(() => {
    const { keys, signed_in } = sessionNow();
    return keys && !signed_in;
  });
  useEffect(() => {
    const stop = whenSignedOut(() => setSignedOut(true));
    return () => {
      stop();
    };
  }, []);
  useShellKeys();
  useCommands(shellCommands);
  const route = signedOut ? routeOf("/sign-in") : routeOf(path);
  const onSignedIn = () => {
    setSignedOut(false);
    if (path === "/sign-in") navigate("/", undefined, { replace: true });
  };
  return html`
    <a class="skip" href="#main" onClick=${skipToMain}>Skip to the page</a>
    <${TopBar} path=${path} />
    <main id="main" class="main" tabindex="-1">
      ${route
        ? html`<${Shown} key=${signedOut ? "sign-in" : JSON.stringify([route.pattern, route.params])} route=${route} query=${query} onSignedIn=${onSignedIn} />`
        : html`<div class="page"><h1>There is no such page</h1><p><a href="#/">To the start</a></p></div>`}
    </main>
  `;
}

/** @param {Event} event */
function skipToMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** @param {{path: string}} props */
function TopBar({ path }) {
  const [theme, setTheme] = useState(shownTheme);
  useEffect(() => {
    const changed = () => setTheme(shownTheme());
    addEventListener("themechange", changed);
    return () => removeEventListener("themechange", changed);
  }, []);
  const { keys, name } = sessionNow();
  return html`<header class="side">
    <a class="brand" href="#/" aria-label="weft, home"><img src=${new URL("./icon.svg", import.meta.url).href} alt="" width="20" height="20" /> <span>weft</span></a>
    <nav class="nav" aria-label="Pages">
      ${PLACES.map(([title, where, key, icon]) => {
        const here = where === "/" ? path === "/" : path === where || path.startsWith(`${where}/`);
        return html`<a class="nav-link" href=${href(where)} aria-current=${here ? "page" : null} title=${`${title} (g ${key})`}>
          <${Icon} name=${icon} /><span class="nav-name">${title}</span>
        </a>`;
      })}
    </nav>
    <div class="side-tools">
      <button class="plain" onClick=${openPalette} title="Go to or do (Ctrl-K)"><${Icon} name="find" /><span class="tool-name">Find</span><kbd class="tool-name">Ctrl K</kbd></button>
      <button class="plain" onClick=${toggleTheme} aria-label=${theme === "dark" ? "Light theme" : "Dark theme"} title=${theme === "dark" ? "Light theme (t)" : "Dark theme (t)"}>
        <${Icon} name=${theme === "dark" ? "light" : "dark"} /><span class="tool-name">${theme === "dark" ? "Light" : "Dark"}</span>
      </button>
      <button class="plain" onClick=${showKeys} aria-label="Keys" title="Keys (?)"><${Icon} name="keys" /><span class="tool-name">Keys</span></button>
      ${keys && name && html`<button class="plain" title=${`Signed in with the key ${name}`} onClick=${leave}><${Icon} name="leave" /><span class="tool-name">Sign out</span></button>`}
    </div>
  </header>`;
}

function leave() {
  signOut().catch((error) => sayProblem(error, "Not signed out"));
}

/** @param {{route: {module: () => Promise<PageModule>, params: Record<string, string>}, query: URLSearchParams, onSignedIn: () => void}} props */
function Shown({ route, query, onSignedIn }) {
  const [module, setModule] = useState(/** @type {PageModule | null} */ (null));
  const [failed, setFailed] = useState(/** @type {unknown} */ (null));
  const [broken, mend] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    let gone = false;
    route.module().then(
      (loaded) => gone || setModule(loaded),
      (error) => (console.error(error), gone || setFailed(error)),
    );
    return () => {
      gone = true;
    };
  }, []);
  useEffect(() => {
    const title = typeof module?.title === "function" ? module.title(route.params) : module?.title;
    document.title = title ? `${title} · weft` : "weft";
    if (module) document.getElementById("main")?.scrollTo(0, 0);
  }, [module]);
  if (broken) return html`<div class="page"><${ProblemNote} problem=${asProblem(broken)} retry=${mend} /></div>`;
  if (failed) {
    return html`<div class="page"><div class="note note-warning" role="alert">
      <strong>This page could not be loaded.</strong>
      <p>The server may have been replaced by another version. <button class="link" onClick=${() => location.reload()}>Load the console again</button></p>
    </div></div>`;
  }
  if (!module) return html`<div class="page"><${Loading} /></div>`;
  return html`<${module.Page} params=${route.params} query=${query} onSignedIn=${onSignedIn} />`;
}

function useShellKeys() {
  /** @type {Record<string, [string, () => void]>} */
  const bindings = { "?": ["These keys", showKeys], t: ["Dark or light", toggleTheme], "/": ["Search on this page", focusSearch] };
  for (const [title, where, key] of PLACES) bindings[`g ${key}`] = [title, () => navigate(where)];
  useKeys(EVERYWHERE, bindings);
  useEffect(() => {
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        openPalette();
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function focusSearch() {
  const field = document.querySelector('main input[type="search"]');
  if (field instanceof HTMLInputElement) {
    field.focus();
    field.select();
  } else openPalette();
}

function shellCommands() {
  return [
    ...PLACES.map(([name, where, key]) => ({ name, hint: "page", keys: `g ${key}`, act: () => navigate(where) })),
    { name: "Failed executions", hint: "list", act: () => navigate("/executions", { state: "FAILED" }) },
    { name: "Running executions", hint: "list", act: () => navigate("/executions", { state: "RUNNING" }) },
    { name: "Dark theme", hint: "appearance", act: () => chooseTheme("dark") },
    { name: "Light theme", hint: "appearance", act: () => chooseTheme("light") },
    { name: "Theme of the system", hint: "appearance", act: () => chooseTheme("system") },
    { name: "Keys", hint: "help", keys: "?", act: showKeys },
    { name: "API documentation", hint: "opens /docs", act: () => location.assign("docs") },
  ];
}

function showKeys() {
  const groups = [...keysInUse()];
  openDialog(
    (close) => html`<${Dialog} title="Keys" wide onClose=${close}>
      <div class="keys">
        ${groups.map(
          ([group, uses]) => html`<section>
            <h3>${group}</h3>
            <dl class="key-list">
              ${group === EVERYWHERE && html`<div class="key-use"><dt><kbd>Ctrl</kbd> <kbd>K</kbd></dt><dd>Go to or do</dd></div>`}
              ${uses.map((use) => html`<div class="key-use"><dt>${use.keys.split(" ").map((key) => html`<kbd>${keyName(key)}</kbd> `)}</dt><dd>${use.does}</dd></div>`)}
            </dl>
          </section>`,
        )}
      </div>
    </${Dialog}>`,
  );
}

/** @param {string} key */
function keyName(key) {
  return { ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" }[key] ?? key;
}

async function start() {
  const host = /** @type {HTMLElement} */ (document.getElementById("app"));
  // The page is on its way while the server is asked who this is.
  routeOf(place().path)?.module().catch(() => {});
  try {
    await loadSession();
  } catch (error) {
    if (asProblem(error).status !== 401) {
      render(html`<main class="main"><div class="page"><${ProblemNote} problem=${asProblem(error)} retry=${() => location.reload()} /></div></main>`, host);
      return;
    }
  }
  render(html`<${App} />`, host);
}

listenForKeys();
start();
