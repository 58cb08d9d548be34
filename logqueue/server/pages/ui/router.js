// Which page a URL shows, and how links and the query of the URL change it.

import {createStore, useStore} from "./store.js";

const ROOT = "/ui/";

/** Path below /ui/, page module. `:x` is one encoded segment. The first that fits is shown. */
const ROUTES = [
  ["", "overview"],
  ["queues/:queue", "queue"],
  ["queues/:queue/jobs", "jobs"],
  ["queues/:queue/jobs/:seq", "job"],
  ["dead-letters", "dead_letters"],
  ["workers", "workers"],
  ["schedules", "schedules"],
  ["batches", "batches"],
  ["log", "log"],
  ["log/:topic", "log"],
  ["server", "server"],
];

const place = createStore(currentPlace());

function currentPlace() {
  return {path: location.pathname, search: location.search, hash: location.hash};
}

/** The page and parameters of a path; page null where there is none. */
export function match(path) {
  const given = path.slice(ROOT.length).replace(/\/$/, "").split("/");
  for (const [pattern, page] of ROUTES) {
    const wanted = pattern.split("/");
    if (wanted.length !== given.length) continue;
    const params = {};
    const fits = wanted.every((part, i) => {
      if (!part.startsWith(":")) return part === given[i];
      params[part.slice(1)] = decoded(given[i]);
      return given[i] !== "";
    });
    if (fits) return {page, params};
  }
  return {page: null, params: {}};
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * A link: `link(["queues", name, "jobs"], {state: "held"})`. Segments are encoded.
 * @param {(string|number)[]} segments
 * @param {Record<string, string|number|boolean|null|undefined>} [query] empty values are left out
 */
export function link(segments, query = {}) {
  const path = segments.map((segment) => encodeURIComponent(String(segment))).join("/");
  return ROOT + path + searchText(query);
}

function searchText(query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `?${text}` : "";
}

/**
 * Show another place.
 * @param {string} url as made by `link`
 * @param {{replace?: boolean}} [options] replace: do not add to the history
 */
export function navigate(url, {replace = false} = {}) {
  const before = location.pathname;
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  place.set(currentPlace());
  if (location.pathname !== before) scrollTo(0, 0);
}

/** The page shown, its parameters, and the path. */
export function useRoute() {
  const path = useStore(place, (value) => value.path);
  return {...match(path), path};
}

/**
 * The query of the URL as an object of strings, and what changes some of it:
 * `setQuery({tag: "x", state: null})`. By default the place in the history is replaced.
 */
export function useQuery() {
  const search = useStore(place, (value) => value.search);
  const query = Object.fromEntries(new URLSearchParams(search));
  const setQuery = (changes, {push = false} = {}) => {
    const current = Object.fromEntries(new URLSearchParams(location.search));
    const text = searchText({...current, ...changes});
    if (text !== location.search) navigate(location.pathname + text, {replace: !push});
  };
  return [query, setQuery];
}

/** Follow links within the dashboard without loading it again. */
export function startRouter() {
  addEventListener("popstate", () => place.set(currentPlace()));
  document.addEventListener("click", (event) => {
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
    const anchor = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!isPlain || event.altKey || event.defaultPrevented || anchor === null) return;
    if (anchor.target || anchor.hasAttribute("download") || anchor.origin !== location.origin) return;
    if (!anchor.pathname.startsWith(ROOT) || anchor.getAttribute("href").startsWith("#")) return;
    event.preventDefault();
    navigate(anchor.pathname + anchor.search + anchor.hash);
  });
}
