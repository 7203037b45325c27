// Above the list: views, search, and what narrows it. Everything is in the address.

import { listWorkflows } from "../api.js";
import { Dialog, openDialog } from "../ui/dialog.js";
import { Icon } from "../ui/icons.js";
import { visible } from "../ui/json_tree.js";
import { useLoad } from "../ui/load.js";
import { Menu } from "../ui/parts.js";
import { html, useState } from "../ui/preact.js";
import { navigate, setQuery } from "../ui/router.js";
import { SearchField } from "../ui/search_field.js";
import { EXECUTION_STATES, stateOf } from "../ui/states.js";
import { say } from "../ui/toast.js";
import { MORE_FIELDS, OWN_VIEWS, SPAN_NAMES, saveViews, savedViews, viewText } from "./query.js";

/** @param {{query: URLSearchParams}} props */
export function Filters({ query }) {
  const states = query.getAll("state");
  const workflows = useLoad((signal) => listWorkflows({ limit: 500 }, signal), []);
  const names = (workflows.data?.items ?? []).map((one) => one.name);
  const workflow = query.get("workflow") ?? "";
  const toggle = (/** @type {string} */ state) =>
    setQuery({ state: states.includes(state) ? states.filter((one) => one !== state) : [...states, state] });
  const used = MORE_FIELDS.filter(([name]) => query.get(name));
  return html`<section class="filters" aria-label="Filters">
    <${Views} query=${query} />
    <div class="row wrap">
      <${SearchField} value=${query.get("q") ?? ""} label="Search executions" hint="Name, id or label" />
      <div class="chips" role="group" aria-label="States">
        ${EXECUTION_STATES.map((name) => {
          const state = stateOf(name);
          return html`<button class="chip" aria-pressed=${String(states.includes(name))} onClick=${() => toggle(name)}>
            <span class=${`state-sign-only state-${state.css}`} aria-hidden="true">${state.sign}</span>${state.word}
          </button>`;
        })}
      </div>
      <select aria-label="Workflow" value=${workflow} onChange=${(/** @type {any} */ event) => setQuery({ workflow: event.target.value, version: null })}>
        <option value="">any workflow</option>
        ${(workflow && !names.includes(workflow) ? [workflow, ...names] : names).map((name) => html`<option value=${name} selected=${name === workflow}>${visible(name)}</option>`)}
      </select>
      <select aria-label="Created" value=${query.get("since") ?? ""} onChange=${(/** @type {any} */ event) => setQuery({ since: event.target.value })}>
        <option value="">any time</option>
        ${SPAN_NAMES.map(([value, name]) => html`<option value=${value} selected=${value === query.get("since")}>${name}</option>`)}
      </select>
      <${Menu} label="More" title="More filters" items=${[
        { name: "Label…", act: () => askFor("label", "Label", "key:value").then((value) => value && setQuery({ label: [...query.getAll("label"), value] })) },
        ...MORE_FIELDS.map(([name, label, hint]) => ({ name: `${label}…`, act: () => askFor(name, label, hint).then((value) => value && setQuery({ [name]: value })) })),
      ]} />
    </div>
    ${(used.length > 0 || query.getAll("label").length > 0) && html`<div class="row wrap">
      ${query.getAll("label").map((label) => html`<${Used} name="Label" value=${label} remove=${() => setQuery({ label: query.getAll("label").filter((one) => one !== label) })} />`)}
      ${used.map(([name, label]) => html`<${Used} name=${label} value=${query.get(name)} remove=${() => setQuery({ [name]: null })} />`)}
    </div>`}
  </section>`;
}

/** @param {{name: string, value: string | null, remove: () => void}} props */
function Used({ name, value, remove }) {
  return html`<span class="used"><span class="muted">${name}</span> <bdi class="ellipsis">${visible(value ?? "")}</bdi>
    <button class="plain icon-button" aria-label=${`Without ${name} ${value}`} onClick=${remove}><${Icon} name="close" /></button></span>`;
}

/** @param {{query: URLSearchParams}} props */
function Views({ query }) {
  const [saved, setSaved] = useState(savedViews);
  const now = viewText(query);
  const known = [...OWN_VIEWS, ...saved].some((view) => view.query === now);
  const save = async () => {
    const name = await askFor("view", "Name of this view", "such as: failed imports");
    if (!name) return;
    const views = [...saved.filter((view) => view.name !== name), { name, query: now }];
    if (!saveViews(views)) say("This browser keeps no views: its storage is off.", { kind: "danger" });
    setSaved(views);
  };
  const remove = (/** @type {string} */ name) => {
    const views = saved.filter((view) => view.name !== name);
    saveViews(views);
    setSaved(views);
  };
  return html`<div class="views row wrap" role="group" aria-label="Views">
    ${[...OWN_VIEWS, ...saved].map((view, i) => html`<span class="view">
      <button class="chip" aria-pressed=${String(view.query === now)} onClick=${() => navigate("/executions", new URLSearchParams(view.query))}><bdi>${view.name}</bdi></button>
      ${i >= OWN_VIEWS.length && view.query === now && html`<button class="plain icon-button" aria-label=${`Forget the view ${view.name}`} onClick=${() => remove(view.name)}><${Icon} name="close" /></button>`}
    </span>`)}
    ${!known && html`<button class="link" onClick=${save}>Save this view</button>`}
  </div>`;
}

/** Ask for one line of text. @param {string} id @param {string} label @param {string} hint @returns {Promise<string | undefined>} */
function askFor(id, label, hint) {
  return openDialog((/** @type {(result?: string) => void} */ close) => {
    const submit = (/** @type {any} */ event) => {
      event.preventDefault();
      close(event.target.elements[id].value.trim());
    };
    return html`<${Dialog} title=${label} onClose=${() => close()}>
      <form class="row" onSubmit=${submit}>
        <input class="grow" name=${id} aria-label=${label} placeholder=${hint} autofocus autocomplete="off" />
        <button class="primary" type="submit">OK</button>
      </form>
    </${Dialog}>`;
  });
}
