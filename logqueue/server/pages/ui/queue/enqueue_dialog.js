// Writing one job by hand.

import {html, useState} from "../vendor/htm-preact.js";
import {api, apiPath, can} from "../api.js";
import {Dialog, Refusal} from "../parts/dialog.js";
import {checkJson, JsonEditor} from "../parts/json_editor.js";
import {notify} from "../parts/notices.js";
import {PriorityField} from "../parts/priority.js";

const UNITS = [
  ["s", 1000],
  ["min", 60_000],
  ["h", 3_600_000],
];

/** What was typed last, by queue: an error, Esc or another page loses nothing. */
const drafts = new Map();

/** @param {{queue: string, onClose: () => void}} props */
export function EnqueueDialog({queue, onClose}) {
  const [draft, setDraft] = useState(
    () => drafts.get(queue) ?? {text: "{\n  \n}", tag: "", key: "", group: "", priority: "0", delay: "", unit: "s"},
  );
  const [isSending, setSending] = useState(false);
  const [error, setError] = useState(null);
  const change = (changes) => {
    const next = {...draft, ...changes};
    drafts.set(queue, next);
    setDraft(next);
  };
  const check = checkJson(draft.text);
  const delay = draft.delay === "" ? 0 : Number(draft.delay);
  const isValid = check.error === null && Number.isFinite(delay) && delay >= 0;
  const send = async (event) => {
    event.preventDefault();
    if (!isValid || isSending) return;
    setSending(true);
    setError(null);
    try {
      const reply = await api.post(apiPath("topics", queue), {records: [recordOf(draft, check.value)]});
      report(queue, reply);
      onClose();
    } catch (error) {
      setError(error);
      setSending(false);
    }
  };
  const input = (name) => (event) => change({[name]: event.target.value});
  return html`<${Dialog} title=${`Enqueue a job in ${queue}`} wide onClose=${onClose}>
    <form onSubmit=${send}>
      <${JsonEditor}
        label="Data"
        rows=${12}
        autofocus
        value=${draft.text}
        onChange=${(text) => change({text})}
      />
      <div class="fields">
        <div class="field">
          <label
            ><span>Tag</span
            ><input value=${draft.tag} onInput=${input("tag")} autocomplete="off" spellcheck=${false}
          /></label>
          <small class="soft">To find and delete it by</small>
        </div>
        <div class="field">
          <label
            ><span>Key</span
            ><input value=${draft.key} onInput=${input("key")} autocomplete="off" spellcheck=${false}
          /></label>
          <small class="soft">Replaces the waiting job with this key</small>
        </div>
        <div class="field">
          <label for="enqueue-delay"><span>Delay</span></label>
          <span class="joined"
            ><input
              id="enqueue-delay"
              type="number"
              min="0"
              step="any"
              placeholder="0"
              value=${draft.delay}
              onInput=${input("delay")}
            /><select aria-label="Unit of the delay" value=${draft.unit} onChange=${input("unit")}>
              ${UNITS.map(([name]) => html`<option key=${name} value=${name}>${name}</option>`)}
            </select></span
          >
          <small class="soft">Not claimable before</small>
        </div>
        <${PriorityField} value=${draft.priority} onValue=${(priority) => change({priority})} />
        <div class="field">
          <label
            ><span>Group</span
            ><input value=${draft.group} onInput=${input("group")} autocomplete="off" spellcheck=${false}
          /></label>
          <small class="soft">The tenant or customer it belongs to</small>
        </div>
      </div>
      <${Refusal} error=${error} doing="Not enqueued" />
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${!isValid || isSending}>
          ${isSending ? "Enqueuing…" : "Enqueue the job"}
        </button>
      </div>
    </form>
  <//>`;
}

function recordOf({tag, key, group, priority, delay, unit}, data) {
  const record = {data};
  if (tag !== "") record.tag = tag;
  if (key !== "") record.key = key;
  if (group !== "") record.group = group;
  if (priority !== "0") record.priority = Number(priority);
  const ms = Math.round(Number(delay || 0) * UNITS.find(([name]) => name === unit)[1]);
  if (ms > 0) record.delay_ms = ms;
  return record;
}

function report(queue, reply) {
  const result = reply.results?.[0] ?? {seq: reply.first_seq, result: "created"};
  if (result.result !== "created") {
    notify(`Job ${result.seq} in ${queue} is ${result.result}: it has this key`);
    return;
  }
  const path = apiPath("topics", queue, "jobs", result.seq);
  const undo = can("delete")
    ? async () => {
        await api.del(path);
        notify(`Job ${result.seq} cancelled`);
      }
    : null;
  notify(`Job ${result.seq} enqueued in ${queue}`, {undo});
}
