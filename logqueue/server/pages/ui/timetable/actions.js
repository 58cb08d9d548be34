// What can be done with a schedule: run it now, pause, resume, delete.

import {html} from "../vendor/htm-preact.js";
import {api, apiPath} from "../api.js";
import {confirmDialog} from "../parts/dialog.js";
import {notify, notifyError} from "../parts/notices.js";

/** Write its record now. @param {{schedule: string, topic: string}} row */
export async function runNow({schedule, topic}, onDone) {
  try {
    const {seq, result} = await api.post(apiPath("schedules", schedule, "run"));
    notify(
      result === "created"
        ? `Job ${seq} enqueued in ${topic} by ${schedule}`
        : `${schedule} made no new job: the record was ${result}, since a job has its key`,
    );
  } catch (error) {
    notifyError(error, `${schedule} was not run`);
  }
  onDone();
}

/** @param {string} schedule */
export async function setSchedulePaused(schedule, paused, onDone) {
  try {
    await api.post(apiPath("schedules", schedule, paused ? "pause" : "resume"));
    const text = paused ? `${schedule} paused: it fires no more` : `${schedule} resumed: it fires from now on`;
    notify(text, {undo: () => setSchedulePaused(schedule, !paused, onDone)});
  } catch (error) {
    notifyError(error, `${schedule} is not ${paused ? "paused" : "resumed"}`);
  }
  onDone();
}

/** Ask, then delete. @param {string} schedule */
export async function deleteSchedule(schedule, onDone) {
  const isSure = await confirmDialog({
    title: `Delete ${schedule}`,
    body: html`<p>It fires no more. Jobs it has made stay. To have it rest only, pause it.</p>`,
    confirm: "Delete the schedule",
    danger: true,
  });
  if (!isSure) return;
  try {
    await api.del(apiPath("schedules", schedule));
    notify(`${schedule} deleted`);
    onDone();
  } catch (error) {
    notifyError(error, `${schedule} is not deleted`);
  }
}
