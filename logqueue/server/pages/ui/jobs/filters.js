// Which jobs are shown: the query of the URL is the query of the API, so a link can be shared.

import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {useFeed} from "../feed.js";
import {count, duration} from "../format.js";
import {useKeys} from "../keyboard.js";
import {PRIORITIES} from "../parts/priority.js";
import {STATES, STATE_NAMES} from "./states.js";

export const FILTERS = ["state", "tag", "key", "node", "text", "group", "priority", "min_age_ms", "max_age_ms", "min_deliveries"];
const NUMBERS = ["priority", "min_age_ms", "max_age_ms", "min_deliveries"];
const TYPED_MS = 300;

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const OLDER = [MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY];
const NEWER = [MINUTE, 10 * MINUTE, HOUR, DAY];
const DELIVERIES = [1, 2, 3, 5, 10];

/** The filters in a query of the URL; what is empty or is not a number where it must be is left out. */
export function filtersOf(query) {
  const found = {};
  for (const name of FILTERS) {
    const value = query[name] ?? "";
    if (value === "" || (NUMBERS.includes(name) && !/^\d{1,15}$/.test(value))) continue;
    if (name === "priority" && !PRIORITIES.includes(value)) continue;
    if (name === "state" && !value.split(",").every((state) => STATES.includes(state))) continue;
    found[name] = value;
  }
  return found;
}

/** The same as a change of many jobs takes it. */
export function filterBody(filters) {
  const body = {...filters};
  for (const name of NUMBERS) if (name in body) body[name] = Number(body[name]);
  if (body.state) body.state = body.state.split(",");
  return body;
}

/** The same in words: "held, tag eu*, older than 1 h". */
export function inWords(filters) {
  const {state, tag, key, node, group, priority, text, min_age_ms: older, max_age_ms: newer, min_deliveries: often} = filters;
  const words = [
    state && state.split(",").map((one) => STATE_NAMES[one].toLowerCase()).join(" or "),
    tag && `tag ${tag}`,
    key && `key ${key}`,
    node && `at the worker ${node}`,
    group && `group ${group}`,
    priority && `priority ${priority}`,
    text && `with “${text}”`,
    older && `older than ${duration(Number(older))}`,
    newer && `newer than ${duration(Number(newer))}`,
    often && `delivered ${often} times or more`,
  ];
  return words.filter(Boolean).join(", ");
}

/** @param {{queue: string, filters: object, setQuery: (changes: object) => void}} props */
export function FilterBar({queue, filters, setQuery}) {
  const [focusSearch, search] = useSearch();
  useKeys({"/": [focusSearch, "Search in the jobs"]});
  const isFiltered = Object.keys(filters).length > 0;
  const clear = () => setQuery(Object.fromEntries(FILTERS.map((name) => [name, null])));
  const set = (name) => (value) => setQuery({[name]: value});
  const text = (name, label, width) => html`<${TypedInput}
    key=${name}
    label=${label}
    className=${`filter ${width}`}
    value=${filters[name] ?? ""}
    onValue=${set(name)}
  />`;
  return html`<div class="job-filters" role="search" aria-label="Filter the jobs">
    <${StateChoice} queue=${queue} state=${filters.state ?? ""} onState=${set("state")} />
    <div class="toolbar">
      <${TypedInput}
        inputRef=${search}
        type="search"
        label="Text in data, tag, key or error"
        placeholder="Text in data, tag, key or error  /"
        className="filter search"
        value=${filters.text ?? ""}
        onValue=${set("text")}
      />
      ${text("tag", "Tag", "short")} ${text("key", "Key", "short")} ${text("node", "Worker", "short")} ${text("group", "Group", "short")}
      <${Select}
        label="Priority"
        value=${filters.priority ?? ""}
        options=${PRIORITIES.map((n) => [n, `Priority ${n}`])}
        any="Any priority"
        written=${(n) => `Priority ${n}`}
        onValue=${set("priority")}
      />
      <${AgeSelect} filters=${filters} setQuery=${setQuery} />
      <${Select}
        label="Deliveries"
        value=${filters.min_deliveries ?? ""}
        options=${DELIVERIES.map((n) => [String(n), `Delivered ${n}× or more`])}
        any="Any deliveries"
        written=${(n) => `Delivered ${n}× or more`}
        onValue=${set("min_deliveries")}
      />
      ${isFiltered && html`<button class="quiet" onClick=${clear}>Clear filters</button>`}
    </div>
  </div>`;
}

function useSearch() {
  const element = useRef(null);
  const focus = () => {
    element.current?.focus();
    element.current?.select();
  };
  return [focus, element];
}

function StateChoice({queue, state, onState}) {
  const topic = useFeed((feed) => feed.topics.get(queue));
  const counts = topic ? {"": topic.count, ...Object.fromEntries(STATES.map((one) => [one, topic[one]]))} : {};
  return html`<div class="segmented states" role="group" aria-label="State">
    ${["", ...STATES].map(
      (one) => html`<button key=${one} aria-pressed=${String(one === state)} onClick=${() => onState(one)}>
        ${one === "" ? "All" : STATE_NAMES[one]}
        <span class=${`number ${counts[one] ? "soft" : "zero"}`}>${count(counts[one])}</span>
      </button>`,
    )}
  </div>`;
}

/** An input that reports what was typed after a pause, or at once with Enter. */
function TypedInput({label, value, onValue, className, placeholder = label, type = "text", inputRef}) {
  const [typed, setTyped] = useState(value);
  const timer = useRef(0);
  useEffect(() => {
    setTyped(value);
    return () => clearTimeout(timer.current);
  }, [value]);
  const report = (text) => {
    clearTimeout(timer.current);
    onValue(text);
  };
  const onInput = (event) => {
    const text = event.target.value;
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(report, TYPED_MS, text);
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter") report(typed);
    if (event.key === "Escape") event.target.blur();
  };
  return html`<input
    ref=${inputRef}
    type=${type}
    class=${className}
    aria-label=${label}
    placeholder=${placeholder}
    autocomplete="off"
    spellcheck=${false}
    maxlength="1000"
    value=${typed}
    onInput=${onInput}
    onKeyDown=${onKeyDown}
  />`;
}

function AgeSelect({filters, setQuery}) {
  const {min_age_ms: older = "", max_age_ms: newer = ""} = filters;
  const value = older !== "" ? `>${older}` : newer !== "" ? `<${newer}` : "";
  const written = (text) => `${text[0] === ">" ? "Older" : "Newer"} than ${duration(Number(text.slice(1)))}`;
  const options = [...OLDER.map((ms) => `>${ms}`), ...NEWER.map((ms) => `<${ms}`)];
  const onValue = (text) => {
    const ms = text.slice(1);
    setQuery({min_age_ms: text[0] === ">" ? ms : null, max_age_ms: text[0] === "<" ? ms : null});
  };
  return html`<${Select} label="Age" value=${value} options=${options.map((one) => [one, written(one)])}
    any="Any age" written=${written} onValue=${onValue} />`;
}

function Select({label, value, options, any, written, onValue}) {
  const known = value === "" || options.some(([one]) => one === value) ? options : [...options, [value, written(value)]];
  return html`<select aria-label=${label} value=${value} onChange=${(event) => onValue(event.target.value)}>
    <option value="">${any}</option>
    ${known.map(([one, text]) => html`<option key=${one} value=${one}>${text}</option>`)}
  </select>`;
}
