// One group of dead letters: what they have in common, and one of them whole.

import {html, useState} from "../vendor/htm-preact.js";
import {api, apiPath, useCan} from "../api.js";
import {count, counted, size} from "../format.js";
import {EditDialog} from "../job/edit_dialog.js";
import {TopicRecord} from "../job/topic_record.js";
import {Copy} from "../parts/copy.js";
import {Dialog} from "../parts/dialog.js";
import {JsonView} from "../parts/json_view.js";
import {notify, notifyError} from "../parts/notices.js";
import {Time} from "../parts/time.js";
import {link} from "../router.js";

export const REASONS = {
  max_deliveries: "delivered too often",
  rejected: "rejected by a worker",
  expired: "expired before it was done",
};

/** @param {{group: object, onClose: () => void, onRedrive: () => void, onDrop: () => void, onChange: () => void}} props */
export function GroupDialog({group, onClose, onRedrive, onDrop, onChange}) {
  const {example, queue, topic} = group;
  const mayMove = useCan("write") & useCan("delete");
  const mayDelete = useCan("delete");
  const [isEditing, setEditing] = useState(false);
  const letter = {topic, seq: example?.$seq};
  const redriveOne = async () => {
    try {
      const reply = await api.post(apiPath("topics", topic, "redrive"), {seqs: [letter.seq]});
      if (reply.redriven === 0) throw new Error("it is no longer there, or its queue has no room");
      notify(`Letter ${letter.seq} moved back to ${reply.targets[0]}`);
      onChange();
      onClose();
    } catch (error) {
      notifyError(error, "Not redriven");
    }
  };
  const title = queue === undefined ? `Records in ${topic}` : `${counted(group.count, "dead letter")} of ${queue}`;
  if (isEditing) {
    const job = {$seq: example.src_seq ?? example.$seq, data: example.data, state: "dead_lettered"};
    return html`<${EditDialog} queue=${queue} job=${job} letter=${letter} onClose=${() => setEditing(false)}
      onSaved=${() => { onChange(); onClose(); }} />`;
  }
  return html`<${Dialog} title=${title} wide onClose=${onClose}>
    <dl class="words">
      ${group.error !== undefined && html`<div><dt>Error</dt><dd><pre class="group-error">${group.error || "No error was given"}</pre></dd></div>`}
      ${group.reason && html`<div><dt>Reason</dt><dd>${REASONS[group.reason] ?? group.reason}</dd></div>`}
      <div><dt>First and last</dt><dd><${Time} at=${group.first_at} /> · <${Time} at=${group.last_at} /></dd></div>
      <div><dt>In</dt><dd><a href=${link(["log", topic])}><bdi>${topic}</bdi></a></dd></div>
    </dl>
    ${example &&
    html`<section class="card" aria-label="One of them">
      <div class="card-head">
        <h2>One of them: the latest</h2>
        ${mayMove && html`<button class="small" onClick=${redriveOne}>Redrive this one</button>`}
        ${mayMove && example.data !== undefined && html`<button class="small" onClick=${() => setEditing(true)}>Redrive with other data…</button>`}
      </div>
      <div class="card-body example">
        <dl class="words">
          ${example.src_seq !== undefined &&
          html`<div><dt>Job</dt><dd><a href=${link(["queues", queue, "jobs", example.src_seq])}><bdi>${queue}</bdi> ${String(example.src_seq)}</a> <span class="soft">· its whole life</span></dd></div>`}
          <div><dt>Letter</dt><dd><${TopicRecord} topic=${topic} seq=${example.$seq} /> · <${Time} at=${example.$ts} /></dd></div>
          ${example.deliveries !== undefined && html`<div><dt>Deliveries</dt><dd>${count(example.deliveries)}</dd></div>`}
          ${example.$tag !== undefined && html`<div><dt>Tag</dt><dd><bdi>${example.$tag}</bdi></dd></div>`}
          ${example.error && html`<div><dt>Error</dt><dd><pre class="last-error-text">${example.error}</pre> <${Copy} text=${example.error} /></dd></div>`}
        </dl>
        ${example.data !== undefined
          ? html`<${JsonView} value=${example.data} label="Data" />`
          : html`<p class="soft">Its data has ${size(example.data_bytes)}: <${TopicRecord} topic=${topic} seq=${example.$seq} /></p>`}
      </div>
    </section>`}
    <div class="dialog-actions">
      <button onClick=${onClose}>Close</button>
      ${mayDelete && queue !== undefined && html`<button class="danger" onClick=${onDrop}>Drop the group…</button>`}
      ${mayMove && queue !== undefined && html`<button class="primary" onClick=${onRedrive}>Redrive the group…</button>`}
    </div>
  <//>`;
}
