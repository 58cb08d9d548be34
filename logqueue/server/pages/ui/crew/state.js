// The state of a worker: a mark, and what it means.

import {html} from "../vendor/htm-preact.js";

const STATES = {
  working: ["ok", "Working", "Seen in the last minute, and has jobs in hand"],
  idle: ["", "Idle", "Seen in the last minute, and has no jobs in hand"],
  silent: ["bad", "Silent", "Not seen for a minute, and has jobs in hand: it is busy with one for long, or dead"],
  gone: ["", "Gone", "Not seen for a minute, and has no jobs in hand"],
};

/** The states in the order in which they are shown. */
export const STATE_NAMES = Object.keys(STATES);

/** @param {string} state */
export function stateLabel(state) {
  return STATES[state]?.[1] ?? state;
}

/** @param {{state: string}} props */
export function WorkerState({state}) {
  const [kind, label, title] = STATES[state] ?? ["", state, ""];
  return html`<span class=${`mark ${kind} worker-${state}`} title=${title}>${label}</span>`;
}

/** How often its jobs did not end well. */
export function failures(worker) {
  return worker.nacked + worker.rejected + worker.expired;
}

/** The same in words. */
export function failuresText({nacked, rejected, expired}) {
  return `${nacked} nacked, ${rejected} rejected, ${expired} expired`;
}
