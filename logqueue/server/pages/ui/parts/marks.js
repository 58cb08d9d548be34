// What keeps a queue from giving jobs, as short marks with the reason in words.

import {html} from "../vendor/htm-preact.js";

/** @param {{topic: object}} props an entry of the feed */
export function Marks({topic}) {
  const marks = [];
  if (topic.paused) marks.push(["warn", "Paused", "Claims get no jobs until it is resumed"]);
  if (topic.held_back === "rate_limited") {
    marks.push(["info", "Rate limited", "Claims get fewer jobs than there are: claim_rate is reached"]);
  } else if (topic.held_back === "max_in_flight") {
    marks.push(["info", "Max. in flight", "Claims get no jobs until some are acked: max_in_flight is reached"]);
  }
  if (topic.held > 0) marks.push(["warn phone-only", "Held jobs", `${topic.held} jobs are held until they are released`]);
  return marks.map(
    ([kind, label, why]) => html`<span key=${label} class=${`mark ${kind}`} title=${why}>${label}</span>`,
  );
}
