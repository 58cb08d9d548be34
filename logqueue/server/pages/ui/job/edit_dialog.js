// Other data for a job: an editor, what will be different, and whether it is retried.

import {html, useMemo, useState} from "../vendor/htm-preact.js";
import {api, apiPath} from "../api.js";
import {DiffView} from "../parts/diff_view.js";
import {Dialog} from "../parts/dialog.js";
import {JsonEditor, checkJson} from "../parts/json_editor.js";
import {written} from "../parts/json_view.js";
import {notify, notifyError} from "../parts/notices.js";
import {PriorityField} from "../parts/priority.js";

/** What was typed last, by job: an error, Esc or another page loses nothing. */
const drafts = new Map();

/**
 * @param {{queue: string, job: object, letter?: {topic: string, seq: number}|null,
 *   onClose: () => void, onSaved: () => void}} props letter: the job is this dead letter by now
 */
export function EditDialog({queue, job, letter = null, onClose, onSaved}) {
  const place = `${queue} ${job.$seq}`;
  const before = useMemo(() => written(job.data), [job.data]);
  const tagBefore = job.$tag ?? "";
  const priorityBefore = String(job.priority ?? 0);
  const [draft, setDraft] = useState(() => drafts.get(place) ?? {text: before, tag: tagBefore, priority: priorityBefore});
  const [isSending, setSending] = useState(false);
  const change = (changes) => {
    const next = {...draft, ...changes};
    drafts.set(place, next);
    setDraft(next);
  };
  const check = useMemo(() => checkJson(draft.text), [draft.text]);
  const after = useMemo(() => (check.error === null ? written(check.value) : draft.text), [check]);
  const isChanged = after !== before || draft.tag !== tagBefore || draft.priority !== priorityBefore;
  const save = async (retry) => {
    if (check.error !== null || isSending) return;
    setSending(true);
    const priority = draft.priority === priorityBefore ? {} : {priority: Number(draft.priority)};
    try {
      if (letter) await redrive(letter, check.value, queue);
      else await edit(queue, job, {data: check.value, tag: draft.tag || null, ...priority}, retry);
      drafts.delete(place);
      onSaved();
      onClose();
    } catch (error) {
      notifyError(error, letter ? "Not redriven" : "Not changed");
    }
    setSending(false);
  };
  const onSubmit = (event) => {
    event.preventDefault();
    save(true);
  };
  const title = letter ? `Redrive job ${job.$seq} with other data` : `Change job ${job.$seq}`;
  return html`<${Dialog} title=${title} wide onClose=${onClose}>
    <form onSubmit=${onSubmit}>
      <${JsonEditor}
        label="Data"
        rows=${14}
        autofocus
        value=${draft.text}
        onChange=${(text) => change({text})}
        hint=${isChanged &&
        html`<button type="button" class="small" onClick=${() => change({text: before, tag: tagBefore, priority: priorityBefore})}>
          As it was
        </button>`}
      />
      ${!letter &&
      html`<div class="fields">
        <label class="field">
          <span>Tag</span>
          <input value=${draft.tag} autocomplete="off" spellcheck=${false} onInput=${(event) => change({tag: event.target.value})} />
        </label>
        <${PriorityField} value=${draft.priority} onValue=${(priority) => change({priority})} />
      </div>`}
      ${check.error === null &&
      after !== before &&
      html`<div><h3>What will be different</h3><div class="job-diff"><${DiffView} before=${before} after=${after} /></div></div>`}
      <p class="soft">
        ${letter
          ? "It goes back to its queue as a new job, with this data and no deliveries."
          : "The job keeps its place, key, deliveries and last error."}
      </p>
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        ${!letter &&
        job.state !== "ready" &&
        html`<button type="button" disabled=${check.error !== null || !isChanged || isSending} onClick=${() => save(false)}>
          Save, do not retry yet
        </button>`}
        <button type="submit" class="primary" disabled=${check.error !== null || isSending || (!isChanged && job.state === "ready")}>
          ${letter ? "Redrive" : job.state === "ready" ? "Save" : "Save and retry now"}
        </button>
      </div>
    </form>
  <//>`;
}

async function redrive(letter, data, queue) {
  const reply = await api.post(apiPath("topics", letter.topic, "redrive"), {seqs: [letter.seq], data});
  if (reply.redriven === 0) throw new Error("the dead letter is no longer there, or its queue has no room");
  notify(`Moved back to ${reply.targets[0] ?? queue} with other data`);
}

async function edit(queue, job, changes, retry) {
  const path = apiPath("topics", queue, "jobs", job.$seq);
  const body = retry && job.state !== "ready" ? {...changes, retry: true} : changes;
  const reply = await api.patch(path, body);
  const undo = async () => {
    await api.patch(path, {data: job.data, tag: job.$tag ?? null, priority: job.priority ?? 0});
    notify(`Job ${job.$seq} has its data back`);
  };
  notify(`Job ${job.$seq} changed; it is ${reply.state.replace("_", " ")}`, {undo});
}
