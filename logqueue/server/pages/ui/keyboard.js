// Keys: single ones and sequences such as `g q`, ignored while somebody types.

import {useLayoutEffect, useRef} from "./vendor/htm-preact.js";
import {createStore, useStore} from "./store.js";

const SEQUENCE_MS = 1200;
const layers = createStore([]);
let started = false;
let first = null;
let firstAt = 0;

/**
 * Listen to keys while the component is shown.
 * @param {Record<string, Function|[Function, string]>} keys by key or sequence ("g q", "/",
 *   "Enter"); with a description it is listed in the help
 */
export function useKeys(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  // Before the page is painted: who sees it may press a key at once.
  useLayoutEffect(() => {
    start();
    const layer = {keys: () => latest.current};
    layers.set((all) => [...all, layer]);
    return () => layers.set((all) => all.filter((one) => one !== layer));
  }, []);
}

/** Every key that has a description: [key, description]. */
export function useKeyList() {
  const found = new Map();
  for (const layer of useStore(layers)) {
    for (const [name, what] of Object.entries(layer.keys())) {
      if (Array.isArray(what)) found.set(name, what[1]);
    }
  }
  return [...found];
}

function start() {
  if (started) return;
  started = true;
  document.addEventListener("keydown", onKey);
}

function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const isSecond = first !== null && event.timeStamp - firstAt < SEQUENCE_MS;
  const handled = (isSecond && run(`${first} ${event.key}`, event)) || run(event.key, event);
  first = null;
  if (!handled && event.key.length === 1 && startsSequence(event.key)) {
    first = event.key;
    firstAt = event.timeStamp;
  }
}

function isTyping(target) {
  if (!(target instanceof Element)) return false;
  if (target.closest("textarea, select, [contenteditable]")) return true;
  const input = target.closest("input");
  return input !== null && !["checkbox", "radio", "button"].includes(input.type);
}

function run(name, event) {
  // A button or link that has the focus takes Enter and Space itself.
  const isOwn = (name === "Enter" || name === " ") && event.target.closest?.("a, button, summary");
  if (isOwn) return false;
  for (const layer of layers.get().toReversed()) {
    const what = layer.keys()[name];
    if (what) {
      event.preventDefault();
      (Array.isArray(what) ? what[0] : what)(event);
      return true;
    }
  }
  return false;
}

function startsSequence(name) {
  return layers.get().some((layer) =>
    Object.keys(layer.keys()).some((known) => known.startsWith(`${name} `)),
  );
}
