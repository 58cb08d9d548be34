// What becomes of a job: how far its worker is, what came of it, what follows it.

import {html} from "../vendor/htm-preact.js";
import {JsonView} from "../parts/json_view.js";
import {link} from "../router.js";

/** What replies show in place of a name outside the prefixes of the key. */
const HIDDEN = "<hidden>";

/** How far the worker says it is. @param {{job: object}} props */
export function JobProgress({job}) {
  const {progress, note} = job;
  if (progress === undefined && note === undefined) return null;
  const percent = Math.floor((progress ?? 0) * 100);
  return html`<section class="card" aria-label="Progress">
    <div class="card-body progress">
      <div class="progress-text">
        <bdi>${note ?? "The worker is on it"}</bdi>
        ${progress !== undefined && html`<span class="number">${percent} %</span>`}
      </div>
      ${progress !== undefined && html`<progress aria-label="Progress of the job" value=${progress} max="1" />`}
    </div>
  </section>`;
}

/** What the ack gave. @param {{job: object, limit: number}} props limit: characters shown at first */
export function JobResult({job, limit}) {
  if (job.result === undefined) return null;
  return html`<section class="card" aria-label="Result">
    <div class="card-head"><h2>Result</h2></div>
    <div class="card-body"><${JsonView} value=${job.result} label="Result" limit=${limit} /></div>
  </section>`;
}

/** The steps of its chain that are left. @param {{job: object}} props */
export function JobSteps({job}) {
  if (job.then === undefined) return null;
  return html`<section class="card" aria-label="What follows">
    <div class="card-head"><h2>What follows</h2></div>
    <div class="card-body">
      <p class="soft">Once it is acked, the first step is written, and so on. If it fails, the chain ends.</p>
      <ol class="job-steps">
        ${job.then.map(
          ({topic, record}, i) => html`<li key=${i}>
            ${topic === HIDDEN
              ? html`<span class="soft">a topic that this key may not see</span>`
              : html`<a href=${link(["queues", topic])}><bdi>${topic}</bdi></a>`}
            <${JsonView} value=${record} label=${`Record of step ${i + 1}`} />
          </li>`,
        )}
      </ol>
    </div>
  </section>`;
}
