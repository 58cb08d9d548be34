// The one live feed of the page: what the server says once a second, kept as state.

import {api, ApiError, setScopes} from "./api.js";
import {syncClock} from "./clock.js";
import {createStore, useStore} from "./store.js";

const PATH = "/v0/stats/stream";
const RECENT = 60;
const SILENCE_MS = 40_000; // the server sends something every 15 s
const HIDDEN_MS = 10_000;
const RETRY_MS = [300, 600, 1000, 2000, 3000, 5000];

/**
 * @typedef {object} FeedState
 * @property {"connecting"|"live"|"lost"} status
 * @property {number} since when the status began, by this machine's clock
 * @property {string|null} problem why the feed is lost
 * @property {boolean} isThere whether the server answers nevertheless
 * @property {object|null} server
 * @property {Map<string, object>} topics
 * @property {object[]} attention
 * @property {boolean} truncated whether the server has more topics than the feed shows
 * @property {number} at the server's time of the last frame
 */
const feed = createStore({
  status: "connecting",
  since: Date.now(),
  problem: null,
  isThere: true,
  server: null,
  topics: new Map(),
  attention: [],
  truncated: false,
  at: 0,
});

/** @param {(state: FeedState) => any} select e.g. `(feed) => feed.topics.get(name)` */
export function useFeed(select) {
  return useStore(feed, select);
}

/** The state now, for code that is not drawn. */
export function feedNow() {
  return feed.get();
}

/** Show a change that a call has just made, before the feed says it. */
export function patchTopic(name, changes) {
  feed.set((state) => {
    const topic = state.topics.get(name);
    if (topic === undefined) return state;
    return {...state, topics: new Map(state.topics).set(name, {...topic, ...changes})};
  });
}

/** The connection while there is one, and what ends a pause between two. */
const line = {stop: null, wake: null, isHidden: false, timer: 0};

/** Connect, and connect again whenever the connection is lost. */
export async function startFeed() {
  document.addEventListener("visibilitychange", onVisibility);
  addEventListener("online", () => line.wake?.());
  let failures = 0;
  for (;;) {
    const problem = await readOnce(() => {
      failures = 0;
    });
    if (line.isHidden) {
      await new Promise((resolve) => (line.wake = resolve));
      continue;
    }
    markLost(problem);
    const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
    failures += 1;
    await new Promise((resolve) => {
      line.wake = resolve;
      setTimeout(resolve, wait);
    });
  }
}

/**
 * Tabs in the background hold no connection: browsers open six to one server, so a few of them would
 * stop all others.
 */
function onVisibility() {
  clearTimeout(line.timer);
  if (document.hidden) {
    line.timer = setTimeout(() => {
      line.isHidden = true;
      line.stop?.abort();
    }, HIDDEN_MS);
  } else {
    line.isHidden = false;
    line.wake?.();
  }
}

/** Read the stream until it ends. @returns {Promise<{text: string, isThere: boolean}>} why it did */
async function readOnce(onFull) {
  const stop = new AbortController();
  line.stop = stop;
  let watchdog = 0;
  const alive = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
  };
  let refusal = null;
  const onEvent = (event, data) => {
    if (event === "error") refusal = data.error?.message ?? data.message ?? null;
    else if (event === "full") {
      onFull();
      takeFull(data);
    } else if (event === "change") takeChange(data);
  };
  alive();
  try {
    await api.stream(PATH, {onEvent, onBytes: alive, onOpen: alive, signal: stop.signal});
    return {text: refusal ?? "it closed the connection", isThere: refusal !== null};
  } catch (error) {
    if (error instanceof ApiError) return {text: error.message, isThere: error.status > 0};
    const text = stop.signal.aborted ? "it has sent nothing for a while" : String(error.message ?? error);
    return {text, isThere: false};
  } finally {
    clearTimeout(watchdog);
    stop.abort();
  }
}

function markLost({text, isThere}) {
  feed.set((state) => {
    const isFirst = state.status !== "lost";
    const since = isFirst ? Date.now() : state.since;
    return {...state, status: "lost", problem: text, isThere, since};
  });
}

function takeFull(frame) {
  syncClock(frame.at);
  setScopes(frame.key ?? null);
  const topics = new Map();
  for (const [name, topic] of Object.entries(frame.topics)) topics.set(name, {name, ...topic});
  const {server, attention = [], truncated = false, at} = frame;
  const before = feed.get();
  const since = before.status === "live" ? before.since : Date.now();
  feed.set({status: "live", since, problem: null, isThere: true, server, topics, attention, truncated, at});
}

function takeChange(frame) {
  syncClock(frame.at);
  feed.set((state) => {
    const seconds = Math.min(RECENT, Math.max(1, Math.round((frame.at - state.at) / 1000)));
    const changed = new Map(Object.entries(frame.topics ?? {}));
    const gone = new Set(frame.gone ?? []);
    const topics = new Map();
    for (const [name, topic] of state.topics) {
      // A topic that was deleted and recreated is in both: what was known of it is forgotten.
      if (!gone.has(name)) topics.set(name, changedTopic(topic, changed.get(name), seconds));
    }
    for (const [name, topic] of changed) {
      if (!topics.has(name)) topics.set(name, {name, ...topic});
    }
    const server = frame.server ? {...state.server, ...frame.server} : state.server;
    const attention = frame.attention ?? state.attention;
    return {...state, status: "live", server, topics, attention, at: frame.at};
  });
}

/** A topic after a frame. Entries that are quiet stay the same object, so nothing is drawn. */
function changedTopic(topic, changes, seconds) {
  const next = changes ? {...topic, ...changes} : topic;
  const written = Math.max(0, next.head_seq - topic.head_seq);
  const removed = Math.max(0, written - (next.count - topic.count));
  const recent = {
    in: appended(topic.recent?.in, written / seconds, seconds),
    out: appended(topic.recent?.out, removed / seconds, seconds),
  };
  if (recent.in === topic.recent?.in && recent.out === topic.recent?.out) return next;
  return {...next, recent};
}

/** The last minute with some more seconds of one value; quiet topics keep their empty list. */
function appended(values = [], value, seconds) {
  const isQuiet = values.every((one) => one === 0);
  if (value === 0 && isQuiet) return values.length === 0 ? values : [];
  const filled = [...new Array(RECENT - values.length).fill(0), ...values];
  return [...filled.slice(seconds), ...new Array(seconds).fill(value)];
}
