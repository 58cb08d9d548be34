// Calls of the public API: the key, JSON that loses no digit, errors, streams.

import {useEffect, useRef, useState} from "./vendor/htm-preact.js";
import {createStore, stored, useStore} from "./store.js";

const key = stored("sessionStorage", "logqueue.key", null);
const SCOPES_LATE_MS = 5000;
/** Undefined until the feed says what the key may do; null: everything. */
const scopes = createStore(undefined);
const declined = createStore(false);
let asking = null;
let askForKey = null;

/** A refusal of the server, or no reply at all (status 0). */
export class ApiError extends Error {
  constructor(status, code, message, detail = null) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.detail = detail;
  }
}

/** @param {(message: string|null) => Promise<string|null>} ask shows what asks for the key */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** Whether this page was given a key. */
export function hasKey() {
  return key.get() !== null;
}

/** Whether the server wants a key and the viewer has closed the question. Draws when it changes. */
export function useDeclined() {
  return useStore(declined);
}

/** Ask for the key again, and load the page again with it. */
export async function askAgain() {
  declined.set(false);
  if ((await keyFromUser(null)) !== null) location.reload();
}

/** Forget the key and start over. */
export function forgetKey() {
  key.set(null);
  location.reload();
}

/** What the key may do, as the feed says it: null for a server without keys. */
export function setScopes(known) {
  if (JSON.stringify(scopes.get()) !== JSON.stringify(known)) scopes.set(known);
}

/** Draws again when it becomes known what the key may do. */
export function useScopes() {
  return useStore(scopes);
}

// Without a feed, behind a proxy that holds streams back, the server still refuses what it must.
setTimeout(() => scopes.get() === undefined && scopes.set(null), SCOPES_LATE_MS);

/** Whether the key has a scope: "read", "write", "delete" or "admin". */
export function can(scope) {
  const known = scopes.get();
  return known === null || (known !== undefined && known.scopes.includes(scope));
}

/** `can`, drawn again when the key changes. */
export function useCan(scope) {
  useScopes();
  return can(scope);
}

export const api = {
  get: (path, options) => call("GET", path, undefined, options),
  post: (path, body, options) => call("POST", path, body, options),
  put: (path, body, options) => call("PUT", path, body, options),
  patch: (path, body, options) => call("PATCH", path, body, options),
  del: (path, body, options) => call("DELETE", path, body, options),
  /** The response itself, for downloads and text; refusals are thrown as everywhere. */
  raw: (method, path, body, options) => send(method, path, body, options),
  stream,
  can,
};

/** A path of the API: `apiPath("topics", name, "jobs")` -> "/v0/topics/…/jobs". */
export function apiPath(...segments) {
  return "/v0/" + segments.map((segment) => encodeURIComponent(String(segment))).join("/");
}

async function call(method, path, body, options) {
  const response = await send(method, path, body, options);
  return parseJson(await textOf(response));
}

async function textOf(response) {
  try {
    return await response.text();
  } catch (error) {
    throw unreachable(error);
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {any} body JSON; a string is sent as it is
 * @param {{signal?: AbortSignal, headers?: Record<string, string>}} options
 */
async function send(method, path, body, {signal, headers = {}} = {}) {
  for (;;) {
    const used = key.get();
    const response = await fetchOnce(method, path, body, headers, used, signal);
    if (response.ok) return response;
    const error = await errorOf(response);
    if (error.status !== 401 || askForKey === null || declined.get()) throw error;
    if (used === key.get()) {
      const given = await keyFromUser(used === null ? null : "The server does not know this key.");
      if (given === null) throw error;
    }
  }
}

async function fetchOnce(method, path, body, headers, secret, signal) {
  const sent = {...headers};
  if (secret !== null) sent.authorization = `Bearer ${secret}`;
  let content;
  if (body !== undefined && body !== null) {
    content = typeof body === "string" ? body : JSON.stringify(body);
    sent["content-type"] ??= "application/json";
  }
  const options = {method, headers: sent, body: content, signal, credentials: "omit"};
  try {
    return await fetch(path, {...options, cache: "no-store", redirect: "error"});
  } catch (error) {
    throw unreachable(error);
  }
}

function unreachable(error) {
  if (error instanceof DOMException && error.name === "AbortError") return error;
  return new ApiError(0, "unreachable", "the server does not answer; check that it is running");
}

async function errorOf(response) {
  let problem = {};
  try {
    problem = JSON.parse(await response.text()).error ?? {};
  } catch {
    // A proxy, perhaps: its status has to do.
  }
  const {code = "unexpected", message = `the server answered ${response.status}`} = problem;
  return new ApiError(response.status, code, message, problem.detail ?? null);
}

function keyFromUser(message) {
  asking ??= askForKey(message).then((given) => {
    asking = null;
    if (given !== null) key.set(given);
    declined.set(given === null);
    return given;
  });
  return asking;
}

const UNUSUAL_NUMBER = /\d{16}|[eE][+-]?\d{3}/;
const KEEPS_NUMBERS = typeof JSON.rawJSON === "function";

/**
 * JSON whose numbers keep all their digits: those that JavaScript would round become
 * `JSON.rawJSON` objects, which `JSON.stringify` writes as they were.
 */
export function parseJson(text) {
  if (!KEEPS_NUMBERS || !UNUSUAL_NUMBER.test(text)) return JSON.parse(text);
  return JSON.parse(text, (name, value, context) => {
    if (typeof value !== "number" || context?.source === undefined) return value;
    return isRounded(context.source) ? JSON.rawJSON(context.source) : value;
  });
}

/** A number in JSON text that this browser would round; null in browsers that round none. */
export function roundedNumber(text) {
  if (KEEPS_NUMBERS || !UNUSUAL_NUMBER.test(text)) return null;
  const numbers = text.replace(/"(?:[^"\\]|\\.)*"/g, '""').match(/-?\d[\d.eE+-]*/g) ?? [];
  return numbers.find(isRounded) ?? null;
}

function isRounded(source) {
  const value = Number(source);
  const digits = source.replace(/[eE].*/, "").replace(/[-.]/g, "").replace(/^0+/, "");
  if (!Number.isFinite(value) || (value === 0 && digits !== "")) return true;
  if (/^-?\d+$/.test(source)) return !Number.isSafeInteger(value);
  return digits.length > 17;
}

/**
 * Read a stream of server-sent events over fetch, until it ends or is aborted.
 * @param {string} path
 * @param {{onEvent: (event: string, data: any, id: string|null) => void, onOpen?: () => void,
 *   onBytes?: () => void, signal?: AbortSignal, body?: any, method?: string}} options
 *   onBytes: called for every part that arrives, heartbeats too
 */
async function stream(path, {onEvent, onOpen, onBytes, signal, body, method}) {
  const how = method ?? (body === undefined ? "GET" : "POST");
  const options = {signal, headers: {accept: "text/event-stream"}};
  const response = await send(how, path, body, options);
  onOpen?.();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const feed = eventParser(onEvent);
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      onBytes?.();
      feed(value);
    }
  } catch (error) {
    throw unreachable(error);
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** What takes text of a stream, and calls for each event. */
export function eventParser(onEvent) {
  let parts = [];
  let event = "message";
  let data = [];
  let id = null;
  const line = (text) => {
    if (text === "") {
      if (data.length) onEvent(event, parseJson(data.join("\n")), id);
      event = "message";
      data = [];
      return;
    }
    const colon = text.indexOf(":");
    const name = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (name === "event") event = value;
    else if (name === "data") data.push(value);
    else if (name === "id") id = value;
  };
  return (text) => {
    const lines = text.split("\n");
    parts.push(lines[0]);
    for (let i = 1; i < lines.length; i += 1) {
      line(parts.join("").replace(/\r$/, ""));
      parts = [lines[i]];
    }
  };
}

/**
 * A reply of the API as state.
 * @param {string|null} path null: nothing is asked
 * @param {{every?: number}} [options] every: ask again after so many ms while the page is shown
 * @returns {{data: any, error: ApiError|null, loading: boolean, reload: () => void}} data of the
 *   last good reply for this path stays while a later one fails
 */
export function useApi(path, {every = 0} = {}) {
  const [state, setState] = useState({path: null, data: null, error: null, loading: true});
  const [round, setRound] = useState(0);
  const timer = useRef(0);
  useEffect(() => {
    if (path === null) return undefined;
    const stop = new AbortController();
    const ask = async () => {
      const next = {path, error: null, loading: false};
      try {
        next.data = await api.get(path, {signal: stop.signal});
      } catch (error) {
        next.error = error;
      }
      if (stop.signal.aborted) return;
      setState((before) => ({data: before.path === path ? before.data : null, ...next}));
      if (every > 0) timer.current = setTimeout(again, every);
    };
    const again = () => {
      if (document.hidden) timer.current = setTimeout(again, every);
      else ask();
    };
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer.current);
    };
  }, [path, every, round]);
  const isCurrent = state.path === path;
  return {
    data: isCurrent ? state.data : null,
    error: isCurrent ? state.error : null,
    loading: path !== null && (!isCurrent || state.loading),
    reload: () => setRound((n) => n + 1),
  };
}
