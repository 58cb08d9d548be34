// One worker: its queues, and what it has in hand.

import {html, useMemo} from "../vendor/htm-preact.js";
import {useApi, useCan} from "../api.js";
import {now} from "../clock.js";
import {count, counted, rate} from "../format.js";
import {Empty} from "../parts/empty.js";
import {Page} from "../parts/page.js";
import {HowFar} from "../parts/progress.js";
import {Table} from "../parts/table.js";
import {Age, Time} from "../parts/time.js";
import {link, navigate} from "../router.js";
import {LeaseLeft} from "./lease_left.js";
import {returnJobs} from "./returning.js";
import {failures, failuresText, WorkerState} from "./state.js";

const EVERY_MS = 2000;
const JOBS_MAX = 1000;

/** @param {{node: string}} props */
export function NodeView({node}) {
  const path = `/v0/workers?${new URLSearchParams({node, jobs: String(JOBS_MAX)})}`;
  const {data, error, reload} = useApi(path, {every: EVERY_MS});
  const mayReturn = useCan("admin");
  const worker = data?.workers[0];
  const give = (topic = null) =>
    returnJobs(worker, {topic, seenAgo: worker.last_seen_ts === null ? null : now() - worker.last_seen_ts, onDone: reload});
  const action =
    mayReturn &&
    worker?.in_flight > 0 &&
    html`<button onClick=${() => give()}>Return ${counted(worker.in_flight, "job")}…</button>`;
  return html`<${Page} title=${node} crumbs=${[["Workers", link(["workers"])]]} actions=${action}>
    ${error && html`<p class="refusal" role="alert">${error.message}</p>`}
    ${data === null && !error && html`<p class="soft">Asking the server who works on what…</p>`}
    ${data !== null && !worker && html`<${Unknown} node=${node} />`}
    ${worker && html`<${Facts} worker=${worker} /><${Queues} worker=${worker} give=${mayReturn ? give : null} /><${Jobs} worker=${worker} />`}
  <//>`;
}

function Unknown({node}) {
  return html`<${Empty} text=${html`No worker <b><bdi>${node}</bdi></b> was seen since the server started, and none of this name holds jobs.`}>
    <a class="button" href=${link(["workers"])}>All workers</a>
  <//>`;
}

function Facts({worker}) {
  const cells = [
    ["State", html`<${WorkerState} state=${worker.state} />`],
    ["Last seen", html`<${Time} at=${worker.last_seen_ts} />`],
    ["In hand", count(worker.in_flight)],
    ["Done per s", rate(worker.acked_per_s)],
    ["Done", count(worker.acked)],
    ["Nacked", count(worker.nacked)],
    ["Rejected", count(worker.rejected)],
    ["Expired", count(worker.expired)],
  ];
  return html`<dl class="totals" aria-label="This worker">
    ${cells.map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

function Queues({worker, give}) {
  const columns = useMemo(() => queueColumns(give), [give !== null, worker]);
  return html`<section class="crew-section">
    <h2>${counted(worker.queues.length, "queue")}</h2>
    <${Table}
      label="Queues of this worker"
      columns=${columns}
      rows=${worker.queues}
      rowKey=${(row) => row.topic}
      onOpen=${(row) => navigate(link(["queues", row.topic]))}
    />
  </section>`;
}

function queueColumns(give) {
  const number = (key, label, show = count, more = {}) => ({
    key,
    label,
    align: "end",
    width: "84px",
    sort: (row) => row[key],
    render: (row) => html`<span class=${row[key] ? "" : "zero"}>${show(row[key])}</span>`,
    ...more,
  });
  return [
    {
      key: "topic",
      label: "Queue",
      sort: (row) => row.topic,
      render: (row) => html`<span class="topic-name"><a href=${link(["queues", row.topic])}><bdi>${row.topic}</bdi></a></span>`,
    },
    number("in_flight", "In hand"),
    number("acked_per_s", "Done/s", rate),
    number("acked", "Done", count, {hideOnPhone: true}),
    {
      key: "failures",
      label: "Failures",
      align: "end",
      width: "84px",
      sort: failures,
      render: (row) => html`<span class=${failures(row) ? "bad-text" : "zero"} title=${failuresText(row)}>${count(failures(row))}</span>`,
    },
    number("streams", "Streams", count, {hideOnPhone: true}),
    number("waiting", "Waiting", count, {hideOnPhone: true}),
    {
      key: "seen",
      label: "Last seen",
      align: "end",
      width: "110px",
      hideOnPhone: true,
      sort: (row) => row.last_seen_ts,
      render: (row) => html`<${Time} at=${row.last_seen_ts} />`,
    },
    {
      key: "do",
      label: html`<span class="hidden">Actions</span>`,
      align: "end",
      width: give ? "96px" : "10px",
      hideOnPhone: true,
      render: (row) =>
        give &&
        row.in_flight > 0 &&
        html`<button class="small" onClick=${() => give(row.topic)}>Return…<span class="hidden"> jobs of ${row.topic}</span></button>`,
    },
  ];
}

const JOB_COLUMNS = [
  {
    key: "topic",
    label: "Queue",
    sort: (row) => row.topic,
    render: (row) => html`<bdi class="soft">${row.topic}</bdi>`,
  },
  {
    key: "seq",
    label: "Job",
    align: "end",
    width: "120px",
    sort: (row) => row.$seq,
    render: (row) => html`<a class="mono" href=${placeOf(row)}>${row.$seq}</a>`,
  },
  {key: "deliveries", label: "Delivery", align: "end", width: "84px", sort: (row) => row.deliveries},
  {
    key: "age",
    label: "Age",
    align: "end",
    width: "110px",
    sort: (row) => row.age_ms,
    render: (row) => html`<${Age} since=${now() - row.age_ms} />`,
  },
  {
    key: "left",
    label: "Lease left",
    align: "end",
    width: "110px",
    sort: (row) => row.deadline,
    render: (row) => html`<${LeaseLeft} deadline=${row.deadline} />`,
  },
];

const PROGRESS = {key: "progress", label: "Progress", width: "150px", hideOnPhone: true, render: (row) => html`<${HowFar} job=${row} />`};

function placeOf(row) {
  return link(["queues", row.topic, "jobs", row.$seq]);
}

function Jobs({worker}) {
  const {jobs, in_flight: total} = worker;
  if (jobs.length === 0) return null;
  const rest = total > jobs.length ? `: the ${count(jobs.length)} whose leases end soonest` : "";
  return html`<section class="crew-section">
    <h2>${counted(total, "job")} in hand<span class="soft">${rest}</span></h2>
    <${Table}
      label="Jobs in hand"
      columns=${jobs.some((job) => job.progress !== undefined || job.note !== undefined) ? [...JOB_COLUMNS, PROGRESS] : JOB_COLUMNS}
      rows=${jobs}
      rowKey=${(row) => `${row.$seq} ${row.topic}`}
      onOpen=${(row) => navigate(placeOf(row))}
    />
  </section>`;
}
