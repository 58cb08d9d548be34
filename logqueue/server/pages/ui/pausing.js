// Pausing and resuming queues, from any page, with Undo.

import {api, apiPath} from "./api.js";
import {patchTopic} from "./feed.js";
import {counted} from "./format.js";
import {notify, notifyError} from "./parts/notices.js";

/**
 * Pause or resume queues.
 * @param {string[]} names
 * @param {boolean} paused
 */
export async function setPaused(names, paused) {
  const done = [];
  for (const name of names) {
    try {
      await api.post(apiPath("topics", name, paused ? "pause" : "resume"));
      patchTopic(name, {paused});
      done.push(name);
    } catch (error) {
      notifyError(error, `${name} is not ${paused ? "paused" : "resumed"}`);
    }
  }
  if (done.length === 0) return;
  const what = done.length === 1 ? done[0] : counted(done.length, "queue");
  const text = paused ? `${what} paused: claims get no jobs` : `${what} resumed`;
  notify(text, {undo: () => setPaused(done, !paused)});
}
