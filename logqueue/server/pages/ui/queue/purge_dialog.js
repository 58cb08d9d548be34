// Removing all jobs in some states: which, how many, and a count that must be typed.

import {html, useState} from "../vendor/htm-preact.js";
import {api, apiPath} from "../api.js";
import {useFeed} from "../feed.js";
import {count, counted} from "../format.js";
import {Dialog, Refusal} from "../parts/dialog.js";
import {notify} from "../parts/notices.js";

const STATES = [
  ["ready", "Ready"],
  ["delayed", "Delayed"],
  ["held", "Held"],
  ["in_flight", "In flight: their workers lose them"],
];

/** @param {{queue: string, onClose: () => void}} props */
export function PurgeDialog({queue, onClose}) {
  const live = useFeed((feed) => feed.topics.get(queue));
  // The count to type stays while it is typed, although jobs come and go.
  const [topic, setTopic] = useState(live);
  const [states, setStates] = useState(["ready"]);
  const [typed, setTyped] = useState("");
  const [isSending, setSending] = useState(false);
  const [error, setError] = useState(null);
  const total = states.reduce((sum, state) => sum + (topic?.[state] ?? 0), 0);
  const mayPurge = total > 0 && typed.trim().replaceAll(",", "") === String(total);
  const liveTotal = states.reduce((sum, state) => sum + (live?.[state] ?? 0), 0);
  const toggle = (state) => {
    setTyped("");
    setTopic(live);
    setStates(states.includes(state) ? states.filter((one) => one !== state) : [...states, state]);
  };
  const purge = async (event) => {
    event.preventDefault();
    if (!mayPurge || isSending) return;
    setSending(true);
    setError(null);
    try {
      const reply = await api.post(apiPath("topics", queue, "purge"), {states});
      const removed = Object.values(reply.purged).reduce((sum, one) => sum + one, 0);
      notify(`${counted(removed, "job")} removed from ${queue}`);
      onClose();
    } catch (error) {
      setError(error);
      setSending(false);
    }
  };
  return html`<${Dialog} title=${`Purge ${queue}`} onClose=${onClose}>
    <form onSubmit=${purge}>
      <fieldset class="choices">
        <legend>Remove all jobs that are</legend>
        ${STATES.map(
          ([state, label]) => html`<label key=${state} class="choice"
            ><input type="checkbox" checked=${states.includes(state)} onChange=${() => toggle(state)} />
            <span>${label}</span><span class="number soft">${count(topic?.[state] ?? 0)}</span></label
          >`,
        )}
      </fieldset>
      <p>
        They are cancelled and not delivered again. This cannot be undone.
        ${liveTotal !== total && ` There are ${count(liveTotal)} by now; all of them are removed.`}
      </p>
      <label class="field"
        ><span>Type <code>${total}</code> to confirm</span>
        <input
          inputmode="numeric"
          autocomplete="off"
          value=${typed}
          disabled=${total === 0}
          onInput=${(event) => setTyped(event.target.value)}
        />
      </label>
      <${Refusal} error=${error} doing="Not all are removed" />
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>Keep them</button>
        <button type="submit" class="danger" disabled=${!mayPurge || isSending}>
          ${isSending ? "Removing…" : `Remove ${counted(total, "job")}`}
        </button>
      </div>
    </form>
  <//>`;
}
