// One job: why it is not running, what it holds, its whole life, and what can be done.

import {html, useEffect, useMemo, useRef, useState} from "../vendor/htm-preact.js";
import {api, apiPath, useApi, useCan} from "../api.js";
import {useFeed} from "../feed.js";
import {count, size} from "../format.js";
import {EditDialog} from "../job/edit_dialog.js";
import {JobProgress, JobResult, JobSteps} from "../job/fate.js";
import {Timeline} from "../job/timeline.js";
import {TopicRecord} from "../job/topic_record.js";
import {useKeys} from "../keyboard.js";
import {Copy} from "../parts/copy.js";
import {confirmDialog} from "../parts/dialog.js";
import {Empty} from "../parts/empty.js";
import {JsonView} from "../parts/json_view.js";
import {notify, notifyError} from "../parts/notices.js";
import {Page} from "../parts/page.js";
import {Time} from "../parts/time.js";
import {link, navigate} from "../router.js";

const LOOK_EVERY_MS = 2000;
const READ_EVERY_MS = 15_000;
const LARGE = 100_000;

const LIVE = ["ready", "delayed", "in_flight", "held"];
const STATES = {
  ready: ["Ready", "ok"],
  delayed: ["Delayed", "info"],
  in_flight: ["In flight", "info"],
  held: ["On hold", "warn"],
  acked: ["Done", "ok"],
  done: ["Done", "ok"],
  dead: ["Dead", "bad"],
  dead_lettered: ["Dead", "bad"],
  rejected: ["Rejected", "bad"],
  expired: ["Expired", "bad"],
  dropped: ["Dropped", "bad"],
};

/** What differs once something has happened to a job. */
const HAPPENS = ["state", "deliveries", "node", "deadline", "not_before", "$updated_at", "last_error"];

/** Reasons that somebody should look at. */
const KINDS = {
  ready_no_worker: "bad",
  lease_expired: "warn",
  paused: "warn",
  held: "warn",
  exhausted: "bad",
  backoff: "warn",
  rate_limited: "warn",
  max_in_flight: "warn",
  expiring: "warn",
  superseded: "warn",
  standby: "warn",
};

export default function JobPage({params}) {
  const {queue, seq} = params;
  const path = apiPath("topics", queue, "jobs", seq);
  const {data: read, error, loading, reload} = useApi(`${path}?ended=true`);
  const isLive = LIVE.includes(read?.job.state);
  const data = useLatest(read, isLive ? `${path}?timeline=false&data=false&ended=true` : null, reload);
  const [isEditing, setEditing] = useState(false);
  const crumbs = [
    ["Queues", link([])],
    [queue, link(["queues", queue])],
    ["Jobs", link(["queues", queue, "jobs"])],
  ];
  const title = `Job ${seq}`;
  if (data === null) {
    return html`<${Page} title=${title} crumbs=${crumbs}><${Nothing} queue=${queue} seq=${seq} error=${error} loading=${loading} /><//>`;
  }
  const {job} = data;
  const letter = isLetter(job) && data.copy?.exists !== false ? (data.copy ?? null) : null;
  const actions = html`<${Actions}
    queue=${queue}
    job=${job}
    letter=${letter}
    onEdit=${() => setEditing(true)}
    reload=${reload}
  />`;
  return html`<${Page} title=${title} crumbs=${crumbs} actions=${actions}>
    <${Why} data=${data} />
    ${error && html`<p class="problem" role="alert">Not up to date: ${error.message}</p>`}
    <div class="job-columns">
      <div class="job-main">
        <${JobProgress} job=${job} />
        <${JobResult} job=${job} limit=${LARGE} />
        <section class="card" aria-label="Data">
          <div class="card-head"><h2>Data</h2></div>
          <div class="card-body">
            ${job.data === undefined && !isLive
              ? html`<p class="soft">The log no longer has the data${data.copy ? "; its copy does." : "."}</p>`
              : html`<${JsonView} value=${job.data} label="Data" limit=${LARGE} />`}
          </div>
        </section>
        ${job.meta !== undefined &&
        html`<section class="card" aria-label="Meta">
          <div class="card-head"><h2>Meta</h2></div>
          <div class="card-body"><${JsonView} value=${job.meta} label="Meta" /></div>
        </section>`}
        <${JobSteps} job=${job} />
      </div>
      <div class="job-side">
        <${Facts} queue=${queue} data=${data} />
        <${Timeline} steps=${data.timeline} isComplete=${data.timeline_complete} next=${isLive ? next(data) : null} />
      </div>
    </div>
    ${isEditing &&
    html`<${EditDialog}
      queue=${queue}
      job=${job}
      letter=${letter}
      onClose=${() => setEditing(false)}
      onSaved=${reload}
    />`}
  <//>`;
}

/**
 * What was read of the job, kept up to date by looks that cost little: the logs are searched again
 * only once something has happened, and now and then while it is in flight.
 */
function useLatest(read, path, reload) {
  const {data: seen} = useApi(path, {every: LOOK_EVERY_MS});
  const readAt = useRef(0);
  useEffect(() => {
    readAt.current = Date.now();
  }, [read]);
  const isOther = seen !== null && read !== null && HAPPENS.some((name) => seen.job[name] !== read.job[name]);
  const isOld = read?.job.state === "in_flight" && Date.now() - readAt.current > READ_EVERY_MS;
  const mustRead = isOther || isOld;
  useEffect(() => {
    if (mustRead) reload();
  }, [mustRead, seen]);
  if (seen === null || read === null || isOther) return read;
  // Only the logs say since when it is in flight.
  const why = seen.why.code === "in_flight" ? read.why : seen.why;
  const {progress, note} = seen.job;
  return {...read, job: {...read.job, progress, note}, why};
}

/** Whether it was dead-lettered; queues that keep results say how it ended in `outcome`. */
function isLetter(job) {
  return (job.outcome ?? job.state) === "dead_lettered";
}

/** The one sentence that this page is opened for. */
function Why({data}) {
  const {job, why, copy} = data;
  const [label, kind] = STATES[job.state] ?? [job.state.replace("_", " "), ""];
  const tone = KINDS[why?.code] ?? (isLetter(job) ? "bad" : "");
  return html`<div class=${`job-why ${tone}`} role="status">
    <span class=${`mark ${kind}`}>${label[0].toUpperCase() + label.slice(1)}</span>
    <p><bdi>${why?.text ?? ""}</bdi></p>
    ${copy &&
    html`<span class="job-why-copy">${copy.exists === false
      ? html`<span class="soft">The copy is gone: redriven, dropped or expired</span>`
      : html`<${TopicRecord} topic=${copy.topic} seq=${copy.seq} />`}</span>`}
  </div>`;
}

function next({job, why}) {
  if (why?.until && job.state === "delayed") return html`Ready <${Time} at=${why.until} />`;
  if (why?.until && job.state === "in_flight") return html`The lease ends <${Time} at=${why.until} />`;
  return null;
}

function Facts({queue, data}) {
  const {job} = data;
  const config = useApi(`${apiPath("topics", queue)}?touch=false`).data?.config;
  const bytes = useMemo(() => (job.data === undefined ? null : new Blob([JSON.stringify(job.data)]).size), [job.data]);
  const most = job.max_deliveries ?? config?.max_deliveries ?? 0;
  const given = job.given_back ? ` (${count(job.given_back)} not counted)` : "";
  const tag = job.$tag;
  const error = job.last_error ?? job.error;
  const jobs = (query) => link(["queues", queue, "jobs"], query);
  const rows = [
    ["Written", job.$ts > 0 && html`<${Time} at=${job.$ts} />`],
    ["Changed", job.$updated_at && html`<${Time} at=${job.$updated_at} />`],
    ["Ended", job.ended_at && html`<${Time} at=${job.ended_at} />`],
    ["Deliveries", job.deliveries !== undefined && `${count(job.deliveries)}${most ? ` of ${count(most)}` : ""}${given}`],
    ["Worker", job.node && html`<a href=${link(["workers"], {node: job.node})}><bdi>${job.node}</bdi></a>`],
    ["Lease ends", job.deadline && html`<${Time} at=${job.deadline} />`],
    ["Ready", job.not_before && html`<${Time} at=${job.not_before} />`],
    ["Expires", job.expires_at && html`<${Time} at=${job.expires_at} />`],
    ["Tag", tag !== undefined && html`<a href=${jobs({tag})}><bdi>${tag}</bdi></a>`],
    ["Priority", job.priority > 0 && html`<a href=${jobs({priority: job.priority})}>${String(job.priority)}</a>`],
    ["Group", job.group !== undefined && html`<a href=${jobs({group: job.group})}><bdi>${job.group}</bdi></a>`],
    ["Batch", job.batch !== undefined && html`<a href=${link(["batches"], {batch: job.batch})}><bdi>${job.batch}</bdi></a>`],
    ["Key", job.$key !== undefined && html`<bdi class="mono">${job.$key}</bdi>`],
    ["Data", bytes !== null && size(bytes)],
  ];
  return html`<section class="card" aria-label="About this job">
    <div class="card-head">
      <h2>About</h2>
      <${Copy} text=${location.href} label="Copy link" />
    </div>
    <div class="card-body">
      <dl class="words job-facts">
        ${rows
          .filter(([, value]) => value)
          .map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}
      </dl>
      ${error && html`<div class="last-error"><h3>Last error</h3><pre>${error}</pre></div>`}
    </div>
  </section>`;
}

function Actions({queue, job, letter, onEdit, reload}) {
  const mayWrite = useCan("write");
  const mayDelete = useCan("delete");
  const isAdmin = useCan("admin");
  const known = useFeed((feed) => feed.topics.get(queue));
  const path = apiPath("topics", queue, "jobs", job.$seq);
  const act = async (doing, work) => {
    try {
      await work();
    } catch (error) {
      notifyError(error, doing);
    }
    reload();
  };
  const retry = () => act("Not retried", async () => {
    await api.patch(path, {retry: true});
    notify(`Job ${job.$seq} is ready now`);
  });
  const changed = (action) => changeOne(queue, job.$seq, action);
  const hold = () => act("Not held", async () => {
    await changed("hold");
    notify(`Job ${job.$seq} is on hold`, {undo: async () => { await changed("release"); reload(); }});
  });
  const giveBack = () => act("Not returned", async () => {
    const sure = await confirmDialog({
      title: `End the lease of job ${job.$seq}?`,
      body: `${job.node} loses it, and it is ready for another worker at once. Do this when that worker is gone: if it is still working, the job is done twice.`,
      confirm: "End the lease",
      danger: true,
    });
    if (!sure) return;
    await changed("return");
    notify(`Job ${job.$seq} is ready again`);
  });
  const cancel = () => act("Not cancelled", async () => {
    const inFlight = job.state === "in_flight";
    const sure = await confirmDialog({
      title: `Cancel job ${job.$seq}?`,
      body: inFlight
        ? `It is in flight: ${job.node} loses it, and what it reports is ignored. The job is removed for good.`
        : "It is removed and never delivered. This cannot be undone.",
      confirm: "Cancel the job",
      keep: "Keep it",
      danger: true,
    });
    if (!sure) return;
    await api.del(`${path}${inFlight ? "?force=true" : ""}`);
    notify(`Job ${job.$seq} cancelled`);
  });
  const redrive = () => act("Not redriven", async () => {
    const reply = await api.post(apiPath("topics", letter.topic, "redrive"), {seqs: [letter.seq]});
    if (reply.redriven === 0) throw new Error("the dead letter is no longer there, or its queue has no room");
    notify(`Moved back to ${reply.targets[0]}`);
  });
  const waits = job.state === "delayed" || job.state === "held";
  const buttons = [
    waits && mayWrite && ["r", job.state === "held" ? "Release" : "Retry now", retry, "primary"],
    letter && mayWrite && mayDelete && ["r", "Redrive", redrive, "primary"],
    (waits || job.state === "ready") && mayWrite && ["e", waits ? "Change and retry…" : "Change…", onEdit, ""],
    letter && mayWrite && mayDelete && ["e", "Redrive with other data…", onEdit, ""],
    (job.state === "ready" || job.state === "delayed") && isAdmin && ["h", "Hold", hold, ""],
    job.state === "in_flight" && isAdmin && ["b", "End the lease…", giveBack, ""],
    LIVE.includes(job.state) && mayDelete && ["c", "Cancel…", cancel, "danger"],
  ].filter(Boolean);
  const keys = Object.fromEntries(buttons.map(([key, label, onClick]) => [key, [onClick, label.replace("…", "")]]));
  useKeys({...keys, u: [() => navigate(link(["queues", queue, "jobs"])), "Up to the jobs"]});
  if (known === undefined && buttons.length === 0) return null;
  return buttons.map(
    ([key, label, onClick, kind]) => html`<button key=${key} class=${kind} title=${`Key: ${key}`} onClick=${onClick}>${label}</button>`,
  );
}

/** Change one job as a change of many would. */
async function changeOne(queue, seq, action) {
  const body = {action, filter: {seqs: [seq]}, wait: true};
  const {operation} = await api.post(apiPath("topics", queue, "jobs", "change"), body);
  if (operation.state === "failed") throw new Error(operation.error?.message ?? "the server failed on it");
  if (operation.changed === 0) throw new Error("the job has changed meanwhile: look at its state");
}

function Nothing({queue, seq, error, loading}) {
  if (loading && error === null) return html`<p class="soft" role="status">Looking for job ${seq} in the queue and in the logs…</p>`;
  if (error?.status === 404) {
    const text =
      error.code === "topic_not_found"
        ? "There is no queue with this name."
        : `There is no job ${seq} in ${queue}, and its logs know of none: it has ended long ago, or never was.`;
    return html`<${Empty} text=${html`<bdi>${text}</bdi>`}>
      <div class="toolbar">
        <a class="button" href=${link(["queues", queue, "jobs"])}>Show the jobs of this queue</a>
        <a class="button" href=${link(["dead-letters"], {queue})}>Dead letters</a>
      </div>
    <//>`;
  }
  return html`<p class="problem" role="alert">The job is not loaded: ${error?.message}</p>`;
}
