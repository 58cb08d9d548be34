// Short notices of what was done or failed, with Undo where there is one.

import {html, useEffect, useLayoutEffect, useRef} from "../vendor/htm-preact.js";
import {createStore, useStore} from "../store.js";

const SHOWN_MS = 6000;
const UNDO_MS = 12_000;
const NOTICES_MAX = 4;
const notices = createStore([]);
let lastId = 0;

/**
 * @param {string} text
 * @param {{undo?: () => any, kind?: "ok"|"error", detail?: string}} [options]
 */
export function notify(text, {undo = null, kind = "ok", detail = ""} = {}) {
  lastId += 1;
  const notice = {id: lastId, text, undo, kind, detail};
  notices.set((all) => [...all.slice(1 - NOTICES_MAX), notice]);
}

/** Show what failed and what to do. Nothing that was typed is touched. */
export function notifyError(error, doing = "") {
  if (error?.name === "AbortError") return;
  const message = String(error?.message ?? error);
  notify(doing ? `${doing}: ${message}` : message, {kind: "error"});
}

function dismiss(id) {
  notices.set((all) => all.filter((one) => one.id !== id));
}

/** Shown once, in the shell. A popover, so that a notice is above a dialog that is open. */
export function Notices() {
  const all = useStore(notices);
  const element = useRef(null);
  useLayoutEffect(() => {
    const {current} = element;
    if (current.matches(":popover-open")) current.hidePopover();
    if (all.length > 0) current.showPopover();
  }, [all]);
  return html`<div
    ref=${element}
    class="notices"
    popover="manual"
    role="region"
    aria-label="Notices"
    aria-live="polite"
  >
    ${all.map((notice) => html`<${Notice} key=${notice.id} notice=${notice} />`)}
  </div>`;
}

function Notice({notice}) {
  const {id, text, undo, kind, detail} = notice;
  useEffect(() => {
    // What failed stays until it was read.
    if (kind === "error") return undefined;
    const timer = setTimeout(() => dismiss(id), undo ? UNDO_MS : SHOWN_MS);
    return () => clearTimeout(timer);
  }, []);
  const onUndo = async () => {
    dismiss(id);
    try {
      await undo();
    } catch (error) {
      notifyError(error, "Not undone");
    }
  };
  return html`<div class=${`notice ${kind}`} role=${kind === "error" ? "alert" : null}>
    <div>
      <p>${text}</p>
      ${detail && html`<p class="soft">${detail}</p>`}
    </div>
    ${undo && html`<button onClick=${onUndo}>Undo</button>`}
    <button class="quiet" onClick=${() => dismiss(id)}>
      <span aria-hidden="true">✕</span><span class="hidden">Dismiss</span>
    </button>
  </div>`;
}
