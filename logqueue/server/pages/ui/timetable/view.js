// One schedule: its next firings, what it writes, what became of the last firing.

import {html} from "../vendor/htm-preact.js";
import {apiPath, useApi, useCan} from "../api.js";
import {count, duration} from "../format.js";
import {Dialog} from "../parts/dialog.js";
import {JsonView} from "../parts/json_view.js";
import {Time} from "../parts/time.js";
import {link} from "../router.js";
import {deleteSchedule, runNow, setSchedulePaused} from "./actions.js";
import {inZone, ScheduleState, When} from "./words.js";

const EVERY_MS = 2000;

/** @param {{name: string, onClose: () => void, onEdit: (schedule: object) => void}} props */
export function ScheduleView({name, onClose, onEdit}) {
  const {data, error, reload} = useApi(`${apiPath("schedules", name)}?next=5`, {every: EVERY_MS});
  return html`<${Dialog} title=${name} wide onClose=${onClose}>
    ${error && html`<p class="refusal" role="alert">${error.message}</p>`}
    ${data === null
      ? !error && html`<p class="loading">Asking the server for the schedule…</p>`
      : html`<${Facts} schedule=${data} />
          <h3>Next firings</h3>
          <${Next} schedule=${data} />
          <h3>What it writes</h3>
          <${JsonView} value=${data.record} label="Record" />
          <${Actions} schedule=${data} reload=${reload} onClose=${onClose} onEdit=${onEdit} />`}
  <//>`;
}

const CATCH_UP = {
  none: "Times that the server has missed are passed over",
  one: "Of times that the server has missed, one is made up for",
  all: "All times that the server has missed are made up for",
};

function Facts({schedule}) {
  const {last_error: problem} = schedule;
  return html`
    ${problem &&
    html`<p class="refusal" role="status">
      The firing of <${Time} at=${schedule.next_at} /> is refused: ${problem.message}. It is tried again
      ${problem.retry_at !== null && html`${" "}<${Time} at=${problem.retry_at} />`}.
    </p>`}
    <dl class="words">
      <div><dt>State</dt><dd><${ScheduleState} schedule=${schedule} /></dd></div>
      <div><dt>Queue</dt><dd><a href=${link(["queues", schedule.topic])}><bdi>${schedule.topic}</bdi></a></dd></div>
      <div><dt>When</dt><dd><${When} schedule=${schedule} /></dd></div>
      ${schedule.jitter_ms > 0 && html`<div><dt>Jitter</dt><dd>up to ${duration(schedule.jitter_ms)} later</dd></div>`}
      <div><dt>Last firing</dt><dd><${LastFiring} schedule=${schedule} /></dd></div>
      <div><dt>Firings</dt><dd>${count(schedule.fired)} made a job, ${count(schedule.skipped)} found one with the key, ${count(schedule.missed)} missed</dd></div>
      <div><dt>Catch-up</dt><dd>${CATCH_UP[schedule.catch_up]}</dd></div>
    </dl>
  `;
}

/** @param {{schedule: object}} props */
export function LastFiring({schedule}) {
  const {last_fired_at: at, last_seq: seq, topic} = schedule;
  if (at === null) return html`<span class="zero">never</span>`;
  return html`<${Time} at=${at} />${seq !== null &&
  html`, <a href=${link(["queues", topic, "jobs", seq])}>job ${String(seq)}</a>`}`;
}

function Next({schedule}) {
  if (schedule.paused) return html`<p class="soft">None while it is paused.</p>`;
  return html`<${Times} times=${schedule.next} timezone=${schedule.timezone} />`;
}

/** @param {{times: number[], timezone: string}} props */
export function Times({times, timezone}) {
  if (times.length === 0) return html`<p class="soft">It does not fire again.</p>`;
  return html`<ol class="times" aria-label="Next firings">
    ${times.map((at) => html`<li key=${at}><span class="number">${inZone(at, timezone)}</span> <span class="soft"><${Time} at=${at} /></span></li>`)}
  </ol>`;
}

function Actions({schedule, reload, onClose, onEdit}) {
  const mayChange = useCan("admin");
  if (!mayChange) return null;
  const {schedule: name, paused} = schedule;
  return html`<div class="dialog-actions">
    <button class="danger" onClick=${() => deleteSchedule(name, onClose)}>Delete…</button>
    <button onClick=${() => onEdit(schedule)}>Edit…</button>
    <button onClick=${() => setSchedulePaused(name, !paused, reload)}>${paused ? "Resume" : "Pause"}</button>
    <button class="primary" onClick=${() => runNow(schedule, reload)}>Run now</button>
  </div>`;
}
