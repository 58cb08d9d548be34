// The server's time as this page sees it, and one tick for all that shows relative times.

import {useEffect} from "./vendor/htm-preact.js";
import {createStore, useStore} from "./store.js";

let offset = 0;
const tick = createStore(Date.now());
let users = 0;
let timer = 0;

/** Milliseconds since 1970 by the server's clock. */
export function now() {
  return Date.now() + offset;
}

/** Learn the server's clock from a message it has just sent. */
export function syncClock(serverMs) {
  const found = serverMs - Date.now();
  // Messages take a while: small differences are that, not the clock.
  if (Math.abs(found - offset) > 1500) offset = found;
}

/** The time, again every second while the page is shown. */
export function useNow() {
  useEffect(() => {
    users += 1;
    if (users === 1) timer = setInterval(() => document.hidden || tick.set(now()), 1000);
    return () => {
      users -= 1;
      if (users === 0) clearInterval(timer);
    };
  }, []);
  useStore(tick);
  return now();
}
