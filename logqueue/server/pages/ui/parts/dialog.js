// Dialogs: the browser's own, which keep the focus inside, close on Esc and give the focus back.

import {html, useLayoutEffect, useRef, useState} from "../vendor/htm-preact.js";
import {createStore, useStore} from "../store.js";

const FIRST = "input, select, textarea, button, a[href]";
let lastId = 0;

/**
 * What went wrong with what a dialog was about to do; nothing while there is no error.
 * @param {{error: Error|null, doing?: string}} props doing: "Not enqueued"
 */
export function Refusal({error, doing}) {
  if (!error) return null;
  const message = String(error.message ?? error);
  return html`<p class="refusal" role="alert">${doing ? `${doing}: ${message}` : message}</p>`;
}

/** @param {{title: string, onClose: () => void, wide?: boolean, children: any}} props */
export function Dialog({title, onClose, wide = false, children}) {
  const element = useRef(null);
  const id = useRef(null);
  id.current ??= `dialog-${(lastId += 1)}`;
  // Before it is painted: who sees it may press Esc or Enter at once.
  useLayoutEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    const body = element.current.querySelector(".dialog-body");
    (body.querySelector("[autofocus]") ?? body.querySelector(FIRST))?.focus();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  const onClick = (event) => event.target === element.current && isOutside(event) && onClose();
  return html`<dialog
    ref=${element}
    class=${wide ? "wide" : ""}
    aria-labelledby=${id.current}
    onCancel=${onCancel}
    onMouseDown=${onClick}
  >
    <div class="dialog-head">
      <h2 id=${id.current}>${title}</h2>
      <button class="quiet" onClick=${onClose} title="Close (Esc)">
        <span aria-hidden="true">✕</span><span class="hidden">Close</span>
      </button>
    </div>
    <div class="dialog-body">${children}</div>
  </dialog>`;
}

function isOutside(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const {clientX: x, clientY: y} = event;
  return x < box.left || x > box.right || y < box.top || y > box.bottom;
}

const shown = createStore([]);

/**
 * Ask before something is done.
 * @param {{title: string, body?: any, confirm: string, danger?: boolean, keep?: string,
 *   typed?: string}} question
 *   confirm: says what will be done and to how many: "Cancel 1,204 jobs"
 *   keep: the label of the other button
 *   typed: what must be typed before the button works, for what cannot be undone
 * @returns {Promise<boolean>}
 */
export function confirmDialog(question) {
  return new Promise((resolve) => {
    const entry = {question};
    entry.settle = (result) => {
      shown.set((all) => all.filter((one) => one !== entry));
      resolve(result);
    };
    shown.set((all) => [...all, entry]);
  });
}

/** Shows what `confirmDialog` asks; once, in the shell. */
export function DialogHost() {
  return useStore(shown).map(
    (entry) => html`<${Confirm} key=${entry} question=${entry.question} settle=${entry.settle} />`,
  );
}

function Confirm({question, settle}) {
  const {title, body, confirm, danger = false, keep = "Keep as it is", typed = null} = question;
  const [text, setText] = useState("");
  const mayConfirm = typed === null || text.trim() === typed;
  const onSubmit = (event) => {
    event.preventDefault();
    if (mayConfirm) settle(true);
  };
  return html`<${Dialog} title=${title} onClose=${() => settle(false)}>
    <form onSubmit=${onSubmit}>
      ${typeof body === "string" ? html`<p>${body}</p>` : body}
      ${typed !== null &&
      html`<label class="field">
        <span>Type <code>${typed}</code> to confirm</span>
        <input
          autofocus
          autocomplete="off"
          spellcheck=${false}
          value=${text}
          onInput=${(event) => setText(event.target.value)}
        />
      </label>`}
      <div class="dialog-actions">
        <button type="button" onClick=${() => settle(false)} autofocus=${danger && typed === null}>
          ${keep}
        </button>
        <button
          type="submit"
          class=${danger ? "danger" : "primary"}
          disabled=${!mayConfirm}
          autofocus=${!danger && typed === null}
        >
          ${confirm}
        </button>
      </div>
    </form>
  <//>`;
}
