// Returning what a worker has in hand to its queues: the count first, then the question.

import {html} from "../vendor/htm-preact.js";
import {api, apiPath} from "../api.js";
import {count, counted, duration} from "../format.js";
import {confirmDialog} from "../parts/dialog.js";
import {notify, notifyError} from "../parts/notices.js";

/**
 * Ask, then end the leases of a worker: its jobs are ready again at once.
 * @param {{node: string, state: string, queues: {topic: string, in_flight: number}[]}} worker
 * @param {{topic?: string, seenAgo: number|null, onDone: () => void}} options
 *   topic: only of this queue; seenAgo: ms since it was last seen
 */
export async function returnJobs(worker, {topic = null, seenAgo, onDone}) {
  const queues = worker.queues.filter((one) => one.in_flight > 0 && (topic === null || one.topic === topic));
  const found = await inEach(queues, (name) => change(name, worker.node, true));
  const total = sum(found);
  if (total === 0) {
    if (found.length === queues.length) notify(`${worker.node} has no jobs in hand now`);
    onDone();
    return;
  }
  const names = found.filter(([, changed]) => changed > 0).map(([name]) => name);
  const isSure = await confirmDialog({
    title: `Return ${counted(total, "job")} of ${worker.node}`,
    body: html`<${Question} worker=${worker} queues=${names} total=${total} seenAgo=${seenAgo} />`,
    confirm: `Return ${counted(total, "job")}`,
    keep: "Leave them",
    danger: worker.state !== "silent",
  });
  if (!isSure) return;
  const done = sum(await inEach(names, (name) => change(name, worker.node, false)));
  const meanwhile = total > done ? `; ${count(total - done)} had ended meanwhile` : "";
  if (done > 0) notify(`${counted(done, "job")} of ${worker.node} returned: other workers get them now${meanwhile}`);
  else notify(`Nothing to return: the jobs of ${worker.node} had ended meanwhile`);
  onDone();
}

function Question({worker, queues, total, seenAgo}) {
  const isOne = total === 1;
  const where = queues.length === 1 ? queues[0] : counted(queues.length, "queue");
  return html`
    <p>
      ${isOne ? "Its lease ends" : "Their leases end"}: ${counted(total, "job")} of <b><bdi>${where}</bdi></b>
      ${isOne ? " is" : " are"} ready at once, and other workers get ${isOne ? "it" : "them"}. The
      delivery counts.
    </p>
    <p class=${worker.state === "silent" ? "" : "refusal"}>
      ${worker.state === "silent"
        ? html`<bdi>${worker.node}</bdi> was last seen ${seenAgo === null ? "before the server started" : `${duration(seenAgo)} ago`}.`
        : html`<bdi>${worker.node}</bdi> is at work.`}
      ${" "}If it still works on ${isOne ? "this job" : "these jobs"}, ${isOne ? "it runs" : "they run"} twice: what it
      reports then is not counted.
    </p>
  `;
}

async function inEach(items, act) {
  const found = [];
  for (const item of items) {
    const name = item.topic ?? item;
    try {
      found.push([name, await act(name)]);
    } catch (error) {
      notifyError(error, `Not returned to ${name}`);
    }
  }
  return found;
}

function sum(found) {
  return found.reduce((total, [, changed]) => total + changed, 0);
}

async function change(name, node, isTrial) {
  const body = {action: "return", filter: {node}, wait: true, dry_run: isTrial};
  const {operation} = await api.post(apiPath("topics", name, "jobs", "change"), body);
  if (operation.error) throw new Error(operation.error.message);
  return operation.changed;
}
