// JSON as a tree that opens bit by bit, can be searched, and never hangs on a large value.

import {html, useMemo, useState} from "../vendor/htm-preact.js";
import {parseJson} from "../api.js";
import {count, size} from "../format.js";
import {Copy} from "./copy.js";

const TEXT_MAX = 500; // characters of a string shown at first
const CHILDREN_STEP = 100;
const OPEN_DEPTH = 3;
const HITS_MAX = 100;
const LOOKED_AT_MAX = 200_000;

/**
 * @param {{value?: any, text?: string, limit?: number, label?: string}} props
 *   text: JSON that is not decoded yet, or any text; limit: characters beyond which the tree is
 *   made only on demand
 */
export function JsonView({value, text, limit = 200_000, label = "Data"}) {
  const [isWanted, setWanted] = useState(false);
  const [search, setSearch] = useState("");
  const source = useMemo(() => text ?? written(value), [value, text]);
  const isLarge = source.length > limit && !isWanted;
  const parsed = useMemo(() => (isLarge ? null : decoded(value, text)), [value, text, isLarge]);
  return html`<div class="json" role="group" aria-label=${label}>
    <div class="json-tools">
      ${!isLarge &&
      isNested(parsed) &&
      html`<input
        type="search"
        placeholder="Search keys and values"
        aria-label=${`Search in ${label}`}
        value=${search}
        onInput=${(event) => setSearch(event.target.value)}
      />`}
      <span class="soft number">${size(new Blob([source]).size)}</span>
      <${Copy} text=${source} />
    </div>
    ${isLarge
      ? html`<pre class="code">${source.slice(0, 2000)}…</pre>
          <button onClick=${() => setWanted(true)}>Show all ${size(source.length)}</button>`
      : search
        ? html`<${Hits} value=${parsed} search=${search} />`
        : html`<div class="json-tree"><${Node} value=${parsed} depth=${0} /></div>`}
  </div>`;
}

/** JSON text of a value, indented. */
export function written(value) {
  return JSON.stringify(value, null, 2) ?? "null";
}

function decoded(value, text) {
  if (text === undefined) return value;
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}

function isRaw(value) {
  return typeof JSON.isRawJSON === "function" && JSON.isRawJSON(value);
}

function isNested(value) {
  return typeof value === "object" && value !== null && !isRaw(value);
}

function Node({value, depth, name}) {
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH);
  const [shown, setShown] = useState(CHILDREN_STEP);
  const label = name === undefined ? null : html`<span class="json-key">${name}</span>: `;
  if (!isNested(value)) return html`<div class="json-line">${label}<${Scalar} value=${value} /></div>`;
  const isArray = Array.isArray(value);
  const keys = isArray ? null : Object.keys(value);
  const length = isArray ? value.length : keys.length;
  const [open, close] = isArray ? ["[", "]"] : ["{", "}"];
  if (length === 0) return html`<div class="json-line">${label}${open}${close}</div>`;
  const items = [];
  for (let i = 0; isOpen && i < Math.min(length, shown); i += 1) {
    const key = isArray ? i : keys[i];
    items.push(html`<${Node} key=${key} name=${key} value=${value[key]} depth=${depth + 1} />`);
  }
  return html`<div class="json-node">
    <button class="json-toggle" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <span class="json-mark" aria-hidden="true">${isOpen ? "▾" : "▸"}</span>${label}${open}
      ${!isOpen && html`<span class="soft">${count(length)} ${isArray ? "items" : "members"}</span>${close}`}
    </button>
    ${isOpen && html`<div class="json-children">${items}</div>`}
    ${isOpen &&
    length > shown &&
    html`<button class="small" onClick=${() => setShown(shown + 10 * CHILDREN_STEP)}>
      ${count(length - shown)} more
    </button>`}
    ${isOpen && html`<div class="json-line json-close">${close}</div>`}
  </div>`;
}

function Scalar({value}) {
  const [isAll, setAll] = useState(false);
  if (typeof value !== "string") {
    const text = isRaw(value) ? value.rawJSON : String(value);
    return html`<span class=${`json-${value === null ? "null" : isRaw(value) ? "number" : typeof value}`}>${text}</span>`;
  }
  const isCut = value.length > TEXT_MAX && !isAll;
  return html`<span class="json-string"
    ><bdi>${JSON.stringify(isCut ? value.slice(0, TEXT_MAX) : value)}</bdi>${isCut &&
    html`… <button class="small" onClick=${() => setAll(true)}>all ${count(value.length)} characters</button>`}</span
  >`;
}

function Hits({value, search}) {
  const {hits, isAll} = useMemo(() => find(value, search.toLowerCase()), [value, search]);
  if (hits.length === 0) return html`<p class="soft">No key or value contains “${search}”.</p>`;
  return html`<ul class="json-hits">
    ${hits.map(
      ([path, found]) => html`<li key=${path}>
        <span class="json-key">${path || "the value"}</span>: ${isNested(found)
          ? html`<span class="soft">${Array.isArray(found) ? "[…]" : "{…}"}</span>`
          : html`<${Scalar} value=${found} />`}
      </li>`,
    )}
    ${!isAll && html`<li class="soft">The first ${count(hits.length)} places are shown.</li>`}
  </ul>`;
}

/** Places whose key or value contains a text. */
function find(value, wanted) {
  const hits = [];
  const waiting = [["", "", value]];
  let looked = 0;
  while (waiting.length > 0) {
    const [path, name, found] = waiting.pop();
    looked += 1;
    if (looked > LOOKED_AT_MAX || hits.length >= HITS_MAX) return {hits, isAll: false};
    const isHit = String(name).toLowerCase().includes(wanted) || (!isNested(found) && contains(found, wanted));
    if (isHit) hits.push([path, found]);
    if (!isNested(found)) continue;
    const keys = Object.keys(found);
    for (let i = keys.length - 1; i >= 0; i -= 1) {
      const key = keys[i];
      const step = Array.isArray(found) ? `[${key}]` : path ? `.${key}` : key;
      waiting.push([path + step, key, found[key]]);
    }
  }
  return {hits, isAll: true};
}

function contains(value, wanted) {
  const text = isRaw(value) ? value.rawJSON : String(value);
  return text.toLowerCase().includes(wanted);
}
