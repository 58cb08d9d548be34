// What needs attention, in words, with the place where it can be put right.

import {html, useState} from "../vendor/htm-preact.js";
import {useCan} from "../api.js";
import {feedNow} from "../feed.js";
import {count} from "../format.js";
import {setPaused} from "../pausing.js";
import {link} from "../router.js";
import {Time} from "./time.js";

const SHOWN = 5;
const LABELS = {
  dead_letters: "Show them",
  held: "Show them",
  no_worker: "Show the workers",
  expiring: "Show the workers",
  old_job: "Show the jobs",
};

/** @param {{entries: {severity: "bad"|"warn", topic: string|null, code: string, text: string, since: number|null}[]}} props */
export function AttentionList({entries}) {
  const [isAll, setAll] = useState(false);
  const shown = isAll ? entries : entries.slice(0, SHOWN);
  return html`<section class="card attention" aria-label="What needs attention">
    <ul>
      ${shown.map(
        (entry) => html`<li key=${`${entry.code} ${entry.topic}`}>
          <span class=${`mark ${entry.severity}`}>${entry.severity === "bad" ? "Problem" : "Warning"}</span>
          <a href=${placeOf(entry)}><bdi>${entry.text}</bdi></a>
          <span class="soft since">${entry.since !== null && html`<${Time} at=${entry.since} />`}</span>
          <${Remedy} entry=${entry} />
        </li>`,
      )}
    </ul>
    ${entries.length > SHOWN &&
    html`<button class="quiet" onClick=${() => setAll(!isAll)}>
      ${isAll ? "Show fewer" : `${count(entries.length - SHOWN)} more`}
    </button>`}
  </section>`;
}

/** What puts it right, or shows what it is about. */
function Remedy({entry}) {
  const isAdmin = useCan("admin");
  if (entry.code === "paused_with_jobs" && isAdmin) {
    return html`<button class="small" onClick=${() => setPaused([entry.topic], false)}>
      Resume<span class="hidden"> ${entry.topic}</span>
    </button>`;
  }
  const label = LABELS[entry.code] ?? (entry.topic ? "Show the queue" : "Show the server");
  return html`<a class="button small" href=${placeOf(entry)}
    >${label}<span class="hidden"> ${entry.topic ?? ""}</span></a
  >`;
}

/** Whether a topic takes the dead letters of queues, rather than being one of them. */
function isShared(topic) {
  return [...feedNow().topics.values()].some((one) => one.dead_letter === topic);
}

/** Where an entry can be put right. */
function placeOf({topic, code}) {
  if (topic === null || topic === undefined) return link(["server"]);
  if (code === "dead_letters") return link(["dead-letters"], isShared(topic) ? {} : {queue: topic});
  if (code === "held") return link(["queues", topic, "jobs"], {state: "held"});
  if (code === "no_worker" || code === "expiring") return link(["workers"], {queue: topic});
  if (code === "old_job") return link(["queues", topic, "jobs"], {state: "ready"});
  return link(["queues", topic]);
}
