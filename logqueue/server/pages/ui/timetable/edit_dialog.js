// Making and changing a schedule: its times are shown while they are typed.

import {html, useEffect, useState} from "../vendor/htm-preact.js";
import {api, apiPath, useApi} from "../api.js";
import {useFeed} from "../feed.js";
import {Dialog, Refusal} from "../parts/dialog.js";
import {checkJson, JsonEditor} from "../parts/json_editor.js";
import {written} from "../parts/json_view.js";
import {notify} from "../parts/notices.js";
import {Times} from "./view.js";

const TYPED_MS = 250;
const UNITS = [
  ["s", 1000],
  ["min", 60_000],
  ["h", 3_600_000],
];
const CATCH_UP = [
  ["one", "fire once for all of them"],
  ["none", "pass over them"],
  ["all", "fire for each of them"],
];

function draftOf(schedule) {
  if (schedule === null) {
    const timezone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";
    return {name: "", topic: "", kind: "cron", cron: "0 3 * * *", every: "5", unit: "min", timezone, catchUp: "one", text: '{\n  "data": {}\n}'};
  }
  const every = schedule.every_ms ?? 300_000;
  const [unit, ms] = [...UNITS].reverse().find(([, one]) => every % one === 0) ?? UNITS[0];
  return {
    name: schedule.schedule,
    topic: schedule.topic,
    kind: schedule.cron === null ? "every" : "cron",
    cron: schedule.cron ?? "0 3 * * *",
    every: String(every / ms),
    unit,
    timezone: schedule.timezone,
    catchUp: schedule.catch_up,
    text: written(schedule.record),
  };
}

function bodyOf({topic, kind, cron, every, unit, timezone, catchUp}, record, jitter) {
  const body = {topic, record, timezone, catch_up: catchUp};
  if (jitter > 0) body.jitter_ms = jitter;
  if (kind === "cron") body.cron = cron;
  else body.every_ms = Math.round(Number(every) * UNITS.find(([name]) => name === unit)[1]);
  return body;
}

/** @param {{schedule: object|null, onClose: () => void, onSaved: () => void}} props null: a new one */
export function ScheduleDialog({schedule, onClose, onSaved}) {
  const [draft, setDraft] = useState(() => draftOf(schedule));
  const [isSending, setSending] = useState(false);
  const [error, setError] = useState(null);
  const check = checkJson(draft.text);
  const isValid = check.error === null && draft.name !== "" && draft.topic !== "";
  const input = (name) => (event) => setDraft({...draft, [name]: event.target.value});
  const save = async (event) => {
    event.preventDefault();
    if (!isValid || isSending) return;
    setSending(true);
    setError(null);
    try {
      const body = bodyOf(draft, check.value, schedule?.jitter_ms ?? 0);
      // A name that is taken must not lose what has it.
      const path = apiPath("schedules", draft.name) + (schedule === null ? "?if_absent=true" : "");
      const {created} = await api.put(path, body);
      if (schedule === null && !created) throw new Error(`there is a schedule ${draft.name}; choose another name`);
      notify(`${draft.name} ${created ? "created" : "changed"}`);
      onSaved();
      onClose();
    } catch (problem) {
      setError(problem);
      setSending(false);
    }
  };
  return html`<${Dialog} title=${schedule === null ? "New schedule" : `Edit ${schedule.schedule}`} wide onClose=${onClose}>
    <form onSubmit=${save}>
      <div class="fields">
        <${Text} label="Name" value=${draft.name} onInput=${input("name")} disabled=${schedule !== null} autofocus=${schedule === null} />
        <${Queue} value=${draft.topic} onInput=${input("topic")} />
      </div>
      <${TimesOf} draft=${draft} input=${input} setKind=${(kind) => setDraft({...draft, kind})} />
      <${JsonEditor} label="Record" rows=${8} value=${draft.text} onChange=${(text) => setDraft({...draft, text})} hint="data, tag, key, …, as in a write" />
      <label class="field"
        ><span>Times that pass while the server is down</span>
        <select value=${draft.catchUp} onChange=${input("catchUp")}>
          ${CATCH_UP.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
        </select>
      </label>
      <${Refusal} error=${error} doing="Not saved" />
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${!isValid || isSending}>${isSending ? "Saving…" : "Save the schedule"}</button>
      </div>
    </form>
  <//>`;
}

function Text({label, ...input}) {
  return html`<div class="field">
    <label><span>${label}</span><input autocomplete="off" spellcheck=${false} ...${input} /></label>
  </div>`;
}

function Queue({value, onInput}) {
  const names = useFeed((feed) => feed.topics);
  const queues = [...names.values()].filter((topic) => topic.type === "queue").slice(0, 500);
  return html`<div class="field">
    <label><span>Queue</span><input list="schedule-queues" value=${value} onInput=${onInput} autocomplete="off" spellcheck=${false} /></label>
    <datalist id="schedule-queues">${queues.map((topic) => html`<option key=${topic.topic} value=${topic.topic} />`)}</datalist>
  </div>`;
}

function TimesOf({draft, input, setKind}) {
  const isCron = draft.kind === "cron";
  return html`
    <div class="segmented" role="group" aria-label="How its times are given">
      <button type="button" aria-pressed=${isCron} onClick=${() => setKind("cron")}>At the times of a cron text</button>
      <button type="button" aria-pressed=${!isCron} onClick=${() => setKind("every")}>At intervals</button>
    </div>
    ${isCron
      ? html`<div class="fields">
            <${Text} label="Cron" value=${draft.cron} onInput=${input("cron")} />
            <${Text} label="Time zone" value=${draft.timezone} onInput=${input("timezone")} />
          </div>
          <${Preview} cron=${draft.cron} timezone=${draft.timezone} />`
      : html`<div class="field">
          <label for="schedule-every"><span>Every</span></label>
          <span class="joined"
            ><input id="schedule-every" type="number" min="1" step="any" value=${draft.every} onInput=${input("every")} /><select
              aria-label="Unit of the interval"
              value=${draft.unit}
              onChange=${input("unit")}
            >
              ${UNITS.map(([name]) => html`<option key=${name} value=${name}>${name}</option>`)}
            </select></span
          >
        </div>`}
  `;
}

/** The next times of what is typed, once it rests. */
function Preview({cron, timezone}) {
  const typed = String(new URLSearchParams({cron, timezone, next: "3"}));
  const [asked, setAsked] = useState(typed);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(typed), TYPED_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  const {data, error} = useApi(`/v0/firings?${asked}`);
  return html`<div role="status">
    ${error ? html`<p class="problem">${error.message}</p>` : data && html`<${Times} times=${data.next} timezone=${data.timezone} />`}
  </div>`;
}
