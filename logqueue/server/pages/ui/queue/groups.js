// The groups of a queue: which have the most jobs waiting, or the oldest, and which may not go.

import {html, useState} from "../vendor/htm-preact.js";
import {apiPath, useApi} from "../api.js";
import {count, counted, duration} from "../format.js";
import {Table} from "../parts/table.js";
import {link} from "../router.js";

const EVERY_MS = 5000;
const SHOWN = 10;
const ORDERS = [
  ["backlog", "Most jobs"],
  ["age", "Oldest job"],
];

/** @param {{queue: string}} props */
export function Groups({queue}) {
  const [order, setOrder] = useState("backlog");
  const path = `${apiPath("topics", queue, "groups")}?limit=${SHOWN}&order=${order}`;
  const {data, error} = useApi(path, {every: EVERY_MS});
  const groups = data?.groups ?? [];
  const others = data ? data.count - groups.length : 0;
  return html`<section class="card" aria-label="Groups">
    <div class="card-head">
      <h2>Groups</h2>
      <div class="segmented" role="group" aria-label="First">
        ${ORDERS.map(
          ([name, label]) => html`<button key=${name} aria-pressed=${String(name === order)} onClick=${() => setOrder(name)}>${label}</button>`,
        )}
      </div>
    </div>
    ${groups.length > 0
      ? html`<div class="inset">
          <${Table} label="Groups" columns=${columnsOf(queue)} rows=${groups} rowKey=${(row) => row.group} keys=${false} />
        </div>`
      : html`<p class=${`card-body ${error ? "problem" : "soft"}`}>
          ${error ? `Not loaded: ${error.message}` : data ? "No group has jobs now." : "Loading the groups…"}
        </p>`}
    ${others > 0 && html`<p class="card-body soft">And about ${counted(others, "other group")}.</p>`}
  </section>`;
}

function columnsOf(queue) {
  const number = (name) => (row) => html`<span class=${row[name] ? "" : "zero"}>${count(row[name])}</span>`;
  return [
    {key: "group", label: "Group", render: ({group}) => html`<a href=${link(["queues", queue, "jobs"], {group})} title=${group}><bdi>${group}</bdi></a>`},
    {key: "blocked", label: "State", width: "108px", render: (row) => html`<${GroupState} row=${row} />`},
    {key: "waiting", label: "Waiting", align: "end", width: "82px", render: number("waiting")},
    {key: "in_flight", label: "In flight", align: "end", width: "82px", render: number("in_flight")},
    {
      key: "oldest",
      label: "Oldest",
      align: "end",
      width: "110px",
      hideOnPhone: true,
      render: ({oldest_seq: seq, oldest_ms: age}) =>
        seq === undefined ? "–" : html`<a href=${link(["queues", queue, "jobs", seq])} title=${`Job ${seq}`}>${duration(age)}</a>`,
    },
  ];
}

function GroupState({row}) {
  if (row.waiting === 0) return html`<span class="mark info">in flight</span>`;
  if (row.blocked) return html`<span class="mark warn" title="A limit of the group, or its rate, lets no job of it go now">must wait</span>`;
  return html`<span class="mark ok">may go</span>`;
}
