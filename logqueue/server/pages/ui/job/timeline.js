// The life of a job, step by step, in words.

import {html, useState} from "../vendor/htm-preact.js";
import {absolute, counted, duration} from "../format.js";
import {Time} from "../parts/time.js";
import {TopicRecord} from "./topic_record.js";

const SHOWN_AT_FIRST = 40;

const WORDS = {
  appended: ["Written", "start"],
  routed: ["Copied here by a router", "start"],
  claimed: ["Claimed", "info"],
  extended: ["Lease renewed", "info"],
  nack: ["Given back", "warn"],
  reject: ["Rejected, its record was gone", "warn"],
  disconnect: ["Returned: its work stream ended", "warn"],
  restart: ["Returned: the server restarted", "warn"],
  postponed: ["Put off: no room in its dead-letter topic", "warn"],
  returned: ["Lease ended by an operator", "warn"],
  delayed: ["Delayed by an operator", "info"],
  retried: ["Made ready by an operator", "info"],
  lease_expired: ["Lease expired", "bad"],
  held: ["Put on hold", "warn"],
  released: ["Released", "info"],
  replaced: ["Got other content", "info"],
  acked: ["Done", "ok"],
  rejected: ["Rejected", "bad"],
  dropped: ["Dropped", "bad"],
  expired: ["Expired", "bad"],
  superseded: ["Replaced by a newer job with its key", "end"],
  cancelled: ["Cancelled", "end"],
  dead_lettered: ["Dead-lettered", "bad"],
  redriven: ["Moved back by a redrive", "end"],
  deleted: ["Deleted", "end"],
};

const REASONS = {
  max_deliveries: "it had all its deliveries",
  rejected: "a worker rejected it",
  expired: "its time to live was over",
};

/** @param {{steps: object[], isComplete: boolean, next?: any}} props next: what comes, in words */
export function Timeline({steps, isComplete, next}) {
  const [isAll, setAll] = useState(false);
  const folded = withoutRepeats(steps);
  const shown = isAll ? folded : folded.slice(-SHOWN_AT_FIRST);
  const hidden = folded.length - shown.length;
  return html`<section class="card" aria-label="Timeline">
    <div class="card-head">
      <h2>Timeline</h2>
      ${!isComplete &&
      html`<span class="soft" title="The logs no longer have all of it, or it was too much to read"
        >Some older steps are not known</span
      >`}
    </div>
    <div class="card-body">
      ${hidden > 0 &&
      html`<button class="small" onClick=${() => setAll(true)}>Show ${counted(hidden, "earlier step")}</button>`}
      <ol class="timeline">
        ${shown.map((step, i) => html`<${Step} key=${hidden + i} step=${step} before=${shown[i - 1]} />`)}
        ${next && html`<li class="next"><span class="dot" aria-hidden="true"></span><div class="soft">${next}</div></li>`}
      </ol>
    </div>
  </section>`;
}

function Step({step, before}) {
  const [words, kind] = WORDS[step.event] ?? [step.event, "info"];
  const after = before ? step.at - before.at : null;
  return html`<li class=${`step ${kind}`}>
    <span class="dot" aria-hidden="true"></span>
    <div class="step-head">
      <span class="step-words">${words}${step.times > 1 && ` ${step.times} times`}</span>
      ${step.node && html`<span class="soft">${" by "}</span><bdi class="mono">${step.node}</bdi>`}
      <${Detail} step=${step} />
      <span class="step-time">${" "}
        ${after !== null && after >= 1000 && html`<span class="faint">+${duration(after)}</span>`}
        <${Time} at=${step.at} />
      </span>
    </div>
    ${step.error && html`<pre class="step-error">${step.error}</pre>`}
  </li>`;
}

function Detail({step}) {
  const parts = [];
  if (step.event === "claimed" || step.event === "extended") {
    const lease = step.deadline - step.at;
    parts.push(html`<span class="soft" title=${`until ${absolute(step.deadline)}`}>for ${duration(lease)}</span>`);
  }
  if (step.not_before > step.at) {
    const wait = duration(step.not_before - step.at);
    parts.push(html`<span class="soft" title=${absolute(step.not_before)}>not before ${wait} later</span>`);
  }
  if (step.reason && REASONS[step.reason]) parts.push(html`<span class="soft">${REASONS[step.reason]}</span>`);
  if (step.producer) parts.push(html`<span class="soft">in a transaction of</span> <bdi>${step.producer}</bdi>`);
  if (step.topic && step.seq) {
    const from = step.event === "appended" || step.event === "routed";
    const what = from ? (step.reason === "redriven" ? "redriven from" : "from") : step.event === "redriven" ? "to" : "copy in";
    parts.push(html`<span class="soft">${what}</span> <${TopicRecord} topic=${step.topic} seq=${step.seq} />`);
  }
  return parts.map((part, i) => html`<span key=${i} class="step-detail">${" "}${part}</span>`);
}

/** Renewals of one lease are one step. */
function withoutRepeats(steps) {
  const folded = [];
  for (const step of steps) {
    const last = folded.at(-1);
    if (step.event === "extended" && last?.event === "extended" && last.node === step.node) {
      folded[folded.length - 1] = {...step, times: (last.times ?? 1) + 1};
    } else {
      folded.push(step);
    }
  }
  return folded;
}
