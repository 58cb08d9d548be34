// How much the server logs, changed for a while or until it ends.

import {html, useState} from "../vendor/htm-preact.js";
import {api, useCan} from "../api.js";
import {notify, notifyError} from "../parts/notices.js";
import {Time} from "../parts/time.js";
import {Card} from "./parts.js";

const LEVELS = ["debug", "info", "warning", "error"];
const SPANS = [
  ["for 10 minutes", 600_000],
  ["for an hour", 3_600_000],
  ["for a day", 86_400_000],
  ["until the server ends", null],
];
const PATH = "/v0/server/log_level";

/** @param {{level: object, onChanged: () => void}} props */
export function LogLevel({level, onChanged}) {
  const isAdmin = useCan("admin");
  const [span, setSpan] = useState(0);
  const set = async (name) => {
    const before = level.level;
    const forMs = name === level.configured ? null : SPANS[span][1];
    try {
      await api.put(PATH, {level: name, for_ms: forMs});
    } catch (error) {
      notifyError(error, "The log level was not changed");
      return;
    }
    onChanged();
    const undo = async () => {
      await api.put(PATH, {level: before});
      onChanged();
    };
    notify(`The log level is ${name}${forMs === null ? "" : ` ${SPANS[span][0]}`}`, {undo});
  };
  return html`<${Card} title="Log level">
    <div class="card-body stack">
      <p>
        <strong>${level.level}</strong>
        ${level.until !== null && level.until !== undefined && html`, <span class="soft">back to ${level.configured} <${Time} at=${level.until} /></span>`}
      </p>
      ${isAdmin &&
      html`<div class="toolbar">
        <div class="segmented" role="group" aria-label="Log level">
          ${LEVELS.map(
            (name) => html`<button key=${name} aria-pressed=${name === level.level} onClick=${() => name === level.level || set(name)}>${name}</button>`,
          )}
        </div>
        <select aria-label="For how long" value=${span} onChange=${(event) => setSpan(Number(event.target.value))}>
          ${SPANS.map(([text], i) => html`<option key=${text} value=${i}>${text}</option>`)}
        </select>
      </div>`}
      <p class="soft">At <code>debug</code> every request is logged, on the standard error of the server.</p>
    </div>
  <//>`;
}
