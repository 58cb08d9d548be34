// A link to a record of another topic: a job of a queue, or a place in a log.

import {html} from "../vendor/htm-preact.js";
import {useFeed} from "../feed.js";
import {link} from "../router.js";

/** @param {{topic: string, seq: number}} props */
export function TopicRecord({topic, seq}) {
  const known = useFeed((feed) => feed.topics.get(topic));
  if (topic === "<hidden>") return html`<span class="soft">a topic that this key may not read</span>`;
  const url = known?.type === "queue" ? link(["queues", topic, "jobs", seq]) : link(["log", topic], {seq});
  return html`<a href=${url}><bdi>${topic}</bdi> ${String(seq)}</a>`;
}
