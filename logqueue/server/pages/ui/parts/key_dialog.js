// Asks for the API key when the server wants one.

import {html, useEffect, useState} from "../vendor/htm-preact.js";
import {onKeyNeeded} from "../api.js";
import {Dialog} from "./dialog.js";

/** Shown once, in the shell; invisible until a call needs a key. */
export function KeyDialog() {
  const [asked, setAsked] = useState(null);
  const [text, setText] = useState("");
  useEffect(() => {
    onKeyNeeded((message) => new Promise((resolve) => setAsked({message, resolve})));
  }, []);
  if (asked === null) return null;
  const settle = (key) => {
    setAsked(null);
    setText("");
    asked.resolve(key);
  };
  const onSubmit = (event) => {
    event.preventDefault();
    if (text.trim()) settle(text.trim());
  };
  return html`<${Dialog} title="API key" onClose=${() => settle(null)}>
    <form onSubmit=${onSubmit}>
      ${asked.message && html`<p class="problem" role="alert">${asked.message}</p>`}
      <p>This server asks for a key. It stays in this tab until the tab is closed.</p>
      <label class="field">
        <span>Key</span>
        <input
          type="password"
          autofocus
          autocomplete="off"
          value=${text}
          onInput=${(event) => setText(event.target.value)}
        />
      </label>
      <p class="soft">
        The part before the first colon of an entry of <code>LOGQUEUE_API_KEYS</code>. A key with
        the scope <code>read</code> can look, but change nothing.
      </p>
      <div class="dialog-actions">
        <button type="submit" class="primary" disabled=${!text.trim()}>Continue</button>
      </div>
    </form>
  <//>`;
}
