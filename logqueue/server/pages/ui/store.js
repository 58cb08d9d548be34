// A value that parts of the page share: who uses it is drawn again when it changes.

import {useEffect, useState} from "./vendor/htm-preact.js";

/**
 * @template T
 * @param {T} initial
 */
export function createStore(initial) {
  let state = initial;
  const listeners = new Set();
  return {
    get: () => state,
    set(next) {
      state = typeof next === "function" ? next(state) : next;
      for (const listener of [...listeners]) listener();
    },
    /** Calls the function after each change. Returns what ends that. */
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/**
 * A part of a store's value; draws again only when that part differs.
 * @param {{get: () => any, subscribe: Function}} store
 * @param {(state: any) => any} [select]
 */
export function useStore(store, select = same) {
  const selected = select(store.get());
  const [, redraw] = useState(0);
  useEffect(() => {
    let last = select(store.get());
    if (!equal(last, selected)) redraw((n) => n + 1);
    return store.subscribe(() => {
      const next = select(store.get());
      if (!equal(next, last)) {
        last = next;
        redraw((n) => n + 1);
      }
    });
    // A selector is written in place and differs in each call; what it selects is checked above.
  });
  return selected;
}

function same(state) {
  return state;
}

function equal(a, b) {
  if (Object.is(a, b)) return true;
  if (!Array.isArray(a) || !Array.isArray(b) || a.length !== b.length) return false;
  return a.every((item, i) => Object.is(item, b[i]));
}

/** A value kept in the browser, or only in memory where that is not allowed. */
export function stored(area, name, initial) {
  let value = initial;
  try {
    const text = globalThis[area].getItem(name);
    if (text !== null) value = JSON.parse(text);
  } catch {
    // No storage, or not what we wrote: the initial value.
  }
  return {
    get: () => value,
    set(next) {
      value = next;
      try {
        if (next === null) globalThis[area].removeItem(name);
        else globalThis[area].setItem(name, JSON.stringify(next));
      } catch {
        // Kept in memory.
      }
    },
  };
}
