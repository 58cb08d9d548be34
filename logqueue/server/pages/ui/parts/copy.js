// Copies text to the clipboard.

import {html, useEffect, useState} from "../vendor/htm-preact.js";
import {notify} from "./notices.js";

/** @param {{text: string, label?: string}} props */
export function Copy({text, label = "Copy"}) {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    if (!isDone) return undefined;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [isDone]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
    } catch {
      notify("The browser does not allow copying here: select the text instead", {kind: "error"});
    }
  };
  return html`<button class="small" onClick=${copy}>${isDone ? "Copied" : label}</button>`;
}
