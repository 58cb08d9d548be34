// What keeps a queue from giving jobs, as short marks with the reason in words.

import {html} from "../vendor/htm-preact.js";

const HELD_BACK = {
  max_in_flight: "max_in_flight is reached",
  claim_rate: "claim_rate is reached",
};

/** @param {{topic: object}} props an entry of the feed */
export function Marks({topic}) {
  const marks = [];
  if (topic.paused) marks.push(["warn", "Paused", "Claims get no jobs until it is resumed"]);
  if (topic.rate_limited) marks.push(["info", "Rate limited", "claim_rate holds claims back"]);
  else if (topic.held_back && topic.held_back !== "paused") {
    const why = HELD_BACK[topic.held_back] ?? String(topic.held_back);
    marks.push(["info", "Limited", why]);
  }
  if (topic.held > 0) marks.push(["warn phone-only", "Held jobs", `${topic.held} jobs are held until they are released`]);
  return marks.map(
    ([kind, label, why]) => html`<span key=${label} class=${`mark ${kind}`} title=${why}>${label}</span>`,
  );
}
