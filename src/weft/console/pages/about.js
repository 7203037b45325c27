// About this server: versions, set-up, links, and every setting with where its value came from.

import { addressOf, getAbout } from "../api.js";
import { Empty, Loading, Note, ProblemNote, useLoad } from "../ui/load.js";
import { CopyButton, PageHeader } from "../ui/parts.js";
import { html, useEffect, useState } from "../ui/preact.js";
import { setQuery } from "../ui/router.js";
import { Ago, formatCount } from "../ui/time.js";

export const title = "About";

/** @typedef {import("../types").About} About */
/** @typedef {import("../types").Setting} Setting */

/** @param {{query: URLSearchParams}} props */
export function Page({ query }) {
  const { data, problem, reload } = useLoad(getAbout, []);
  return html`<div class="page">
    <${PageHeader} title="About" about=${data && html`<span>${`weft ${data.version}`}</span>`} />
    ${problem && html`<${ProblemNote} problem=${problem} retry=${reload} />`}
    ${!data && !problem && html`<${Loading} />`}
    <div class="cards">
      ${data && html`<${Versions} about=${data} />`}
      ${data && html`<${Links} links=${data.links} />`}
    </div>
    ${data && html`<${Settings} settings=${data.settings} query=${query} />`}
  </div>`;
}

/** @param {{about: About}} props */
function Versions({ about }) {
  const { have, want } = about.schema;
  const facts = [
    ["weft", about.version],
    ["Python", about.python],
    ["Started", html`<${Ago} at=${about.started_at} />`],
    ["Journal", about.journal],
    ["Store", about.store],
    ["Transport", about.transport],
    ["Durability", about.durability],
    ["Schema", have === null && want === null ? html`<span class="muted">none: a journal in memory</span>` : html`<code>${have ?? "none"}</code>`],
  ];
  return html`<section class="card stack" aria-labelledby="versions-title">
    <h2 id="versions-title">This server</h2>
    <dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd class="break">${value}</dd></div>`)}</dl>
    ${have !== want && html`<${Note} kind="warning">This release knows the schema <code>${want}</code>: run <code>weft migrate</code>, or update the server.</${Note}>`}
  </section>`;
}

/** @param {{links: {title: string, url: string}[]}} props */
function Links({ links }) {
  return html`<section class="card stack" aria-labelledby="links-title">
    <h2 id="links-title">Pages of this server</h2>
    <ul class="stack">${links.filter((link) => isOwn(link.url)).map(
      (link) => html`<li class="row wrap"><a href=${addressOf(link.url)}>${link.title}</a> <code class="muted">${link.url}</code></li>`,
    )}</ul>
    <p>The guides: <code>weft docs</code> prints their list in a shell, and <code>weft docs tutorial</code> a page.</p>
  </section>`;
}

/** True if an address is a path of this server, and leads nowhere else. @param {string} url */
export function isOwn(url) {
  return /^\/(?![/\\])/.test(url);
}

/** @param {{settings: Setting[], query: URLSearchParams}} props */
function Settings({ settings, query }) {
  const text = query.get("q") ?? "";
  const onlySet = query.get("set") === "yes";
  const fitting = fittingSettings(settings, { text, onlySet });
  return html`<section class="stack" aria-labelledby="settings-title">
    <div class="row wrap">
      <h2 id="settings-title">Settings</h2>
      <${Search} value=${text} />
      <button class="chip" aria-pressed=${String(onlySet)} onClick=${() => setQuery({ set: onlySet ? null : "yes" }, { replace: true })}>set by you</button>
      <span class="muted number" aria-live="polite">${`${formatCount(fitting.length)} of ${formatCount(settings.length)}`}</span>
    </div>
    <p class="muted small">Of the process that answered; other processes of a fleet may have others. Secrets are not shown.</p>
    ${fitting.length
      ? html`<ul class="settings" role="list">${fitting.map((setting) => html`<${SettingRow} key=${setting.name} setting=${setting} />`)}</ul>`
      : html`<${Empty} title="No setting fits."><button onClick=${() => setQuery({ q: null, set: null })}>Show all</button></${Empty}>`}
  </section>`;
}

/**
 * Return the settings whose name, value or meaning has every word of a text.
 * @param {Setting[]} settings @param {{text: string, onlySet: boolean}} wanted
 */
export function fittingSettings(settings, { text, onlySet }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return settings.filter((one) => {
    const all = `${one.name} ${one.value ?? ""} ${one.source} ${one.doc}`.toLowerCase();
    return (!onlySet || one.source !== "default") && words.every((word) => all.includes(word));
  });
}

/** @param {{setting: Setting}} props */
function SettingRow({ setting }) {
  const own = setting.source !== "default";
  return html`<li class=${`setting${own ? " own" : ""}`}>
    <div class="setting-name"><code class="break">${setting.name}</code><${CopyButton} text=${setting.name} what="Name copied" /></div>
    <div class="setting-value">${setting.value === null ? html`<span class="muted">not set</span>` : html`<code class="break">${setting.value}</code>`}
      <span class=${own ? "label setting-source" : "muted small"}>${own ? setting.source : "default"}</span></div>
    <div class="setting-doc small">${setting.doc}${own && html`<span class="muted">${` Default: ${setting.default}.`}</span>`}</div>
  </li>`;
}

/** @param {{value: string}} props */
function Search({ value }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const typed = (/** @type {any} */ event) => {
    setText(event.target.value);
    setQuery({ q: event.target.value.trim() || null }, { replace: true });
  };
  return html`<input class="search" type="search" placeholder="Name, value or meaning" aria-label="Search settings" value=${text} onInput=${typed} />`;
}
