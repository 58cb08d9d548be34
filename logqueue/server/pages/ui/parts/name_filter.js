// The field above a table that keeps the rows with a text in their name; the text is in the URL.

import {html, useRef} from "../vendor/htm-preact.js";
import {useKeys} from "../keyboard.js";

/** @param {{query: Record<string, string>, setQuery: Function}} props as of `useQuery` */
export function NameFilter({query, setQuery}) {
  const input = useRef(null);
  useKeys({"/": [() => input.current?.focus(), "Filter by name"]});
  const onKey = (event) => {
    if (event.key === "Escape") setQuery({q: null});
    if (event.key === "Escape" || event.key === "Enter") input.current.blur();
  };
  return html`<input
    ref=${input}
    type="search"
    class="name-filter"
    placeholder="Filter by name ( / )"
    aria-label="Filter by name"
    value=${query.q ?? ""}
    onInput=${(event) => setQuery({q: event.target.value})}
    onKeyDown=${onKey}
  />`;
}
