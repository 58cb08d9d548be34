// One queue: how it does, what it is set up to do, and what can be done with it.

import {html, useState} from "../vendor/htm-preact.js";
import {api, apiPath, useApi, useCan} from "../api.js";
import {useFeed} from "../feed.js";
import {count, counted, rate} from "../format.js";
import {useKeys} from "../keyboard.js";
import {AttentionList} from "../parts/attention.js";
import {Empty} from "../parts/empty.js";
import {JsonView} from "../parts/json_view.js";
import {Marks} from "../parts/marks.js";
import {notify, notifyError} from "../parts/notices.js";
import {Page} from "../parts/page.js";
import {Table} from "../parts/table.js";
import {Age} from "../parts/time.js";
import {setPaused} from "../pausing.js";
import {QueueCharts} from "../queue/charts.js";
import {ConfigDialog} from "../queue/config_dialog.js";
import {configInWords} from "../queue/config_words.js";
import {EnqueueDialog} from "../queue/enqueue_dialog.js";
import {Groups} from "../queue/groups.js";
import {PurgeDialog} from "../queue/purge_dialog.js";
import {link, navigate} from "../router.js";

const CONFIG_EVERY_MS = 10_000;
const JOBS_EVERY_MS = 5000;
const JOBS_SHOWN = 8;
const ERROR_MAX = 200;
const CRUMBS = [["Queues", link([])]];

export default function QueuePage({params}) {
  const {queue} = params;
  const path = apiPath("topics", queue);
  const {data, error, reload} = useApi(`${path}?touch=false`, {every: CONFIG_EVERY_MS});
  const live = useFeed((feed) => feed.topics.get(queue));
  const [open, setOpen] = useState(null);
  if (error?.status === 404) return html`<${NoQueue} queue=${queue} onCreated=${reload} />`;
  if (error?.status === 403) return html`<${NotAllowed} queue=${queue} error=${error} />`;
  const type = data?.type ?? live?.type;
  if (type === "log") return html`<${NotAQueue} queue=${queue} />`;
  const close = () => setOpen(null);
  return html`
    <${Page}
      title=${queue}
      crumbs=${CRUMBS}
      actions=${html`<${Actions} queue=${queue} topic=${live} onOpen=${setOpen} mayEdit=${data !== null} />`}
    >
      ${live && html`<${State} queue=${queue} topic=${live} />`}
      <${Attention} queue=${queue} />
      ${error && html`<p class="problem" role="alert">The config is not loaded: ${error.message}</p>`}
      <${States} queue=${queue} topic=${live ?? data?.queue} />
      ${type === "queue" && html`<${QueueCharts} queue=${queue} />`}
      ${type === "queue" && html`<${NextJobs} queue=${queue} />`}
      ${data?.config.groups && html`<${Groups} queue=${queue} />`}
      <div class="columns">
        ${data && html`<${Config} config=${data.config} onEdit=${() => setOpen("config")} />`}
        <${Connections} queue=${queue} config=${data?.config} />
      </div>
      ${open === "enqueue" && html`<${EnqueueDialog} queue=${queue} onClose=${close} />`}
      ${open === "purge" && html`<${PurgeDialog} queue=${queue} onClose=${close} />`}
      ${open === "config" &&
      html`<${ConfigDialog}
        queue=${queue}
        config=${data.config}
        version=${data.config_version}
        onClose=${close}
        onSaved=${reload}
      />`}
    <//>
  `;
}

function Actions({queue, topic, onOpen, mayEdit}) {
  const mayWrite = useCan("write");
  const isAdmin = useCan("admin");
  const mayDelete = useCan("delete");
  const isPaused = Boolean(topic?.paused);
  const pause = () => topic && setPaused([queue], !isPaused);
  useKeys({
    ...(mayWrite && {n: [() => onOpen("enqueue"), "Enqueue a job"]}),
    ...(isAdmin && {
      e: [() => mayEdit && onOpen("config"), "Edit the config"],
      p: [pause, "Pause or resume the queue"],
    }),
  });
  return html`
    <a class="button" href=${link(["queues", queue, "jobs"])}>Jobs</a>
    ${isAdmin && html`<button disabled=${!topic} onClick=${pause}>${isPaused ? "Resume" : "Pause"}</button>`}
    ${isAdmin && html`<button disabled=${!mayEdit} onClick=${() => onOpen("config")}>Edit config…</button>`}
    ${mayDelete && html`<button class="danger" onClick=${() => onOpen("purge")}>Purge…</button>`}
    ${mayWrite && html`<button class="primary" onClick=${() => onOpen("enqueue")}>Enqueue…</button>`}
  `;
}

/** One sentence: is it running, and if not, why. */
function State({queue, topic}) {
  return html`<p class="state-line">
    <${Marks} topic=${topic} />
    <span class="soft">${stateInWords(topic)}</span>
  </p>`;
}

function stateInWords({paused, ready, in_flight: inFlight, delayed, held, workers}) {
  if (paused) return "Paused: claims get no jobs until it is resumed. Writes and acks continue.";
  const jobs = (number, what) => (number > 0 ? [`${count(number)} ${what}`] : []);
  const others = [...jobs(inFlight, "in flight"), ...jobs(delayed, "delayed"), ...jobs(held, "held")];
  const rest = others.length > 0 ? `; ${others.join(", ")}` : "";
  if (ready === 0) return rest ? `No job is ready${rest}.` : "The queue is empty.";
  const who = workers === 0 ? "no worker claims from this queue" : counted(workers, "worker");
  return `${counted(ready, "job")} ready, ${who}${rest}.`;
}

function Attention({queue}) {
  const entries = useFeed((feed) => feed.attention).filter((entry) => entry.topic === queue);
  if (entries.length === 0) return null;
  return html`<${AttentionList} entries=${entries} />`;
}

/** Jobs by state, each with the list of them, and how it flows. */
function States({queue, topic}) {
  const jobs = (state) => link(["queues", queue, "jobs"], {state});
  const cells = [
    ["Ready", count(topic?.ready), jobs("ready")],
    ["In flight", count(topic?.in_flight), jobs("in_flight")],
    ["Delayed", count(topic?.delayed), jobs("delayed")],
    ["Held", count(topic?.held), jobs("held"), topic?.held > 0 && "warn-text"],
    ["Dead", count(topic?.dead), link(["dead-letters"], {queue}), topic?.dead > 0 && "bad-text"],
    ["Oldest ready", html`<${Age} since=${topic?.oldest_ready_at} />`, jobs("ready")],
    ["Workers", count(topic?.workers), link(["workers"], {queue})],
    ["In per s", rate(topic?.rates?.appended)],
    ["Acked per s", rate(topic?.rates?.acked)],
  ];
  return html`<dl class="totals states" aria-label="Jobs of this queue">
    ${cells.map(
      ([label, value, url, kind]) => html`<div key=${label}>
        <dt>${label}</dt>
        <dd class=${kind || ""}>${url ? html`<a href=${url}>${value}</a>` : value}</dd>
      </div>`,
    )}
  </dl>`;
}

/** The first jobs by seq: those that claims look at first. */
function NextJobs({queue}) {
  const path = `${apiPath("topics", queue, "jobs")}?data=false&limit=${JOBS_SHOWN}`;
  const {data, error} = useApi(path, {every: JOBS_EVERY_MS});
  const jobs = data?.jobs ?? [];
  if (data && jobs.length === 0) return null;
  return html`<section class="card" aria-label="Oldest jobs">
    <div class="card-head">
      <h2>Oldest jobs</h2>
      <a class="button small" href=${link(["queues", queue, "jobs"])}>Show all jobs</a>
    </div>
    ${data
      ? html`<div class="inset">
          <${Table}
            label="Oldest jobs"
            columns=${JOB_COLUMNS}
            rows=${jobs}
            rowKey=${(job) => job.$seq}
            onOpen=${(job) => navigate(link(["queues", queue, "jobs", job.$seq]))}
          />
        </div>`
      : html`<p class=${`card-body ${error ? "problem" : "soft"}`}>
          ${error ? `Not loaded: ${error.message}` : "Loading the jobs…"}
        </p>`}
  </section>`;
}

const STATE_KINDS = {held: "warn", in_flight: "info", ready: "ok"};
const JOB_COLUMNS = [
  {
    key: "$seq",
    label: "Seq",
    width: "96px",
    render: (job) => html`<span class="mono">${job.$seq}</span>`,
  },
  {
    key: "state",
    label: "State",
    width: "96px",
    render: (job) =>
      html`<span class=${`mark ${STATE_KINDS[job.state] ?? ""}`}>${job.state.replace("_", " ")}</span>`,
  },
  {key: "age", label: "Age", width: "104px", render: (job) => html`<${Age} since=${job.$ts} />`},
  {key: "deliveries", label: "Deliveries", align: "end", width: "90px", hideOnPhone: true},
  {key: "tag", label: "Tag", width: "150px", hideOnPhone: true, render: (job) => html`<bdi>${job.$tag ?? ""}</bdi>`},
  {key: "node", label: "Worker", width: "150px", hideOnPhone: true, render: (job) => html`<bdi>${job.node ?? ""}</bdi>`},
  {
    key: "last_error",
    label: "Last error",
    render: (job) => html`<bdi class="problem" title=${job.last_error}>${cut(job.last_error)}</bdi>`,
  },
];

function cut(text = "") {
  return text.length > ERROR_MAX ? `${text.slice(0, ERROR_MAX)}…` : text;
}

function Config({config, onEdit}) {
  const isAdmin = useCan("admin");
  const [isAll, setAll] = useState(false);
  return html`<section class="card" aria-label="Config">
    <div class="card-head">
      <h2>Config</h2>
      <button class="small" onClick=${() => setAll(!isAll)}>${isAll ? "In words" : "As JSON"}</button>
      ${isAdmin && html`<button class="small" onClick=${onEdit}>Edit…</button>`}
    </div>
    <div class="card-body">
      ${isAll
        ? html`<${JsonView} value=${config} label="Config" />`
        : html`<dl class="words">
            ${configInWords(config).map(
              ([subject, sentence]) => html`<div key=${subject}>
                <dt>${subject}</dt>
                <dd>${sentence}</dd>
              </div>`,
            )}
          </dl>`}
    </div>
  </section>`;
}

/** Where jobs come from and go to by themselves. */
function Connections({queue, config}) {
  const from = useApi(`/v0/routers?source=${encodeURIComponent(queue)}`);
  const to = useApi(`/v0/routers?dest=${encodeURIComponent(queue)}`);
  const rows = [
    ...(to.data?.routers ?? []).map((router) => [
      `router ${router.router}`,
      "Jobs come from",
      router.source,
      `router ${router.router}, ${counted(router.forwarded_total, "copy", "copies")}`,
    ]),
    ...(from.data?.routers ?? []).map((router) => [
      `router ${router.router}`,
      "Jobs are copied to",
      router.dest,
      `router ${router.router}, ${counted(router.forwarded_total, "copy", "copies")}`,
    ]),
  ];
  if (config?.dead_letter) rows.push(["dead", "Dead letters go to", config.dead_letter, ""]);
  if (config?.archive) rows.push(["archive", "Finished jobs go to", config.archive, ""]);
  const error = from.error ?? to.error;
  return html`<section class="card" aria-label="Connections">
    <div class="card-head"><h2>Connections</h2></div>
    <div class="card-body">
      ${error && html`<p class="problem">The routers are not loaded: ${error.message}</p>`}
      ${rows.length === 0 &&
      !error &&
      html`<p class="soft">
        No router leads here or away, and there is neither a dead-letter topic nor an archive.
      </p>`}
      <dl class="words">
        ${rows.map(
          ([key, what, name, how]) => html`<div key=${`${what} ${key} ${name}`}>
            <dt>${what}</dt>
            <dd>
              <${TopicLink} name=${name} />${what === "Dead letters go to" &&
              html` · <a href=${link(["dead-letters"], {queue})}>grouped by error</a>`}
              ${how && html`<span class="soft"> · ${how}</span>`}
            </dd>
          </div>`,
        )}
      </dl>
    </div>
  </section>`;
}

/** What replies show in place of a name outside the prefixes of the key. */
const HIDDEN = "<hidden>";

function TopicLink({name}) {
  const topic = useFeed((feed) => feed.topics.get(name));
  const url = link(topic?.type === "queue" ? ["queues", name] : ["log", name]);
  if (name === HIDDEN) return html`<span class="soft">a topic that this key may not see</span>`;
  if (topic === undefined) return html`<bdi>${name}</bdi> <span class="soft">(does not exist yet)</span>`;
  return html`<a href=${url}><bdi>${name}</bdi></a>`;
}

function NotAQueue({queue}) {
  return html`<${Page} title=${queue} crumbs=${CRUMBS}>
    <${Empty} text="This topic is a log, not a queue: its records are read, not claimed.">
      <a class="button" href=${link(["log", queue])}>Show its records</a>
    <//>
  <//>`;
}

function NotAllowed({queue, error}) {
  return html`<${Page} title=${queue} crumbs=${CRUMBS}>
    <${Empty} text=${`The server refused: ${error.message}.`}>
      <a class="button" href=${link([])}>Show the queues of this key</a>
    <//>
  <//>`;
}

function NoQueue({queue, onCreated}) {
  const isAdmin = useCan("admin");
  const create = async () => {
    try {
      await api.post(apiPath("topics", queue, "ensure"), {type: "queue"});
      notify(`${queue} created`);
      onCreated();
    } catch (error) {
      notifyError(error, "Not created");
    }
  };
  return html`<${Page} title=${queue} crumbs=${CRUMBS}>
    <${Empty} text="There is no queue with this name. It may have been deleted, or the name is misspelt.">
      <div class="toolbar">
        <a class="button" href=${link([])}>Show all queues</a>
        ${isAdmin && html`<button onClick=${create}>Create it</button>`}
      </div>
    <//>
  <//>`;
}
