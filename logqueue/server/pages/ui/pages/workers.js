// Workers: who works on which queue, what they have in hand, and giving back what a dead one holds.

import {html, useMemo} from "../vendor/htm-preact.js";
import {useApi, useCan} from "../api.js";
import {now} from "../clock.js";
import {count, counted, rate} from "../format.js";
import {Empty} from "../parts/empty.js";
import {NameFilter} from "../parts/name_filter.js";
import {Page} from "../parts/page.js";
import {Table} from "../parts/table.js";
import {Time} from "../parts/time.js";
import {link, navigate, useQuery} from "../router.js";
import {LeaseLeft} from "../crew/lease_left.js";
import {NodeView} from "../crew/node_view.js";
import {returnJobs} from "../crew/returning.js";
import {failures, failuresText, STATE_NAMES, stateLabel, WorkerState} from "../crew/state.js";

const EVERY_MS = 2000;
const SILENT_SHOWN = 5;
const QUEUES_SHOWN = 3;

export default function WorkersPage() {
  const [query, setQuery] = useQuery();
  if (query.node) return html`<${NodeView} key=${query.node} node=${query.node} />`;
  return html`<${Crew} query=${query} setQuery=${setQuery} />`;
}

function Crew({query, setQuery}) {
  const search = new URLSearchParams({jobs: "1", ...(query.queue && {topic: query.queue})});
  const {data, error, reload} = useApi(`/v0/workers?${search}`, {every: EVERY_MS});
  const mayReturn = useCan("admin");
  const all = data?.workers ?? [];
  const rows = useMemo(() => filtered(all, query), [data, query.q, query.state]);
  const give = (worker) =>
    returnJobs(worker, {
      topic: query.queue ?? null,
      seenAgo: worker.last_seen_ts === null ? null : now() - worker.last_seen_ts,
      onDone: reload,
    });
  return html`<${Page} title="Workers">
    ${error && html`<p class="refusal" role="alert">${error.message}</p>`}
    ${data === null
      ? !error && html`<p class="soft">Asking the server who works on what…</p>`
      : html`
          <${Silent} workers=${all} give=${mayReturn ? give : null} />
          <${Filter} query=${query} setQuery=${setQuery} all=${all} />
          ${all.length === 0
            ? html`<${NoWorker} query=${query} setQuery=${setQuery} />`
            : html`<${Workers} rows=${rows} query=${query} setQuery=${setQuery} give=${mayReturn ? give : null} />`}
          ${data.count > all.length &&
          html`<p class="soft">The ${count(all.length)} seen last of ${count(data.count)} are shown.</p>`}
        `}
  <//>`;
}

function filtered(workers, {q = "", state}) {
  const wanted = q.toLowerCase();
  const fits = (one) => (!state || one.state === state) && one.node.toLowerCase().includes(wanted);
  // Not in the order in which they were last seen, in which rows would change places all the time.
  return workers.filter(fits).sort((a, b) => rank(a) - rank(b) || (a.node < b.node ? -1 : 1));
}

function rank({state}) {
  return ["silent", "working", "idle", "gone"].indexOf(state);
}

// -- workers that hold jobs and are not heard of -------------------------------------------------

function Silent({workers, give}) {
  const silent = workers.filter((worker) => worker.state === "silent");
  if (silent.length === 0) return null;
  const shown = silent.slice(0, SILENT_SHOWN);
  return html`<section class="card attention silent-workers" aria-label="Workers that are silent">
    <ul>
      ${shown.map(
        (worker) => html`<li key=${worker.node}>
          <span class="mark bad">Silent</span>
          <a href=${link(["workers"], {node: worker.node})}>
            <bdi>${worker.node}</bdi> holds ${counted(worker.in_flight, "job")} of ${queuesText(worker)}, last seen${" "}
            ${worker.last_seen_ts === null ? "before the server started" : html`<${Time} at=${worker.last_seen_ts} />`}
          </a>
          ${give && html`<button class="small" onClick=${() => give(worker)}>Return ${counted(worker.in_flight, "job")}…</button>`}
        </li>`,
      )}
    </ul>
    ${silent.length > shown.length &&
    html`<a class="more" href=${link(["workers"], {state: "silent"})}>${count(silent.length - shown.length)} more</a>`}
  </section>`;
}

function queuesText(worker) {
  const held = worker.queues.filter((queue) => queue.in_flight > 0);
  if (held.length === 1) return html`<bdi>${held[0].topic}</bdi>`;
  return counted(held.length, "queue");
}

// -- filter --------------------------------------------------------------------------------------

function Filter({query, setQuery, all}) {
  return html`<div class="toolbar">
    <${NameFilter} query=${query} setQuery=${setQuery} />
    <div class="segmented" role="group" aria-label="Which workers are shown">
      <${StateButton} label="All" total=${all.length} isOn=${!query.state} onClick=${() => setQuery({state: null})} />
      ${STATE_NAMES.map(
        (state) => html`<${StateButton}
          key=${state}
          label=${stateLabel(state)}
          total=${all.filter((worker) => worker.state === state).length}
          isOn=${query.state === state}
          onClick=${() => setQuery({state})}
        />`,
      )}
    </div>
    ${query.queue &&
    html`<button class="chip" onClick=${() => setQuery({queue: null})} title="Show the workers of all queues">
      Queue <b><bdi>${query.queue}</bdi></b> <span aria-hidden="true">✕</span><span class="hidden">: show all queues</span>
    </button>`}
  </div>`;
}

function StateButton({label, total, isOn, onClick}) {
  return html`<button aria-pressed=${isOn} onClick=${onClick}>${label} <span class="soft">${count(total)}</span></button>`;
}

// -- the table -----------------------------------------------------------------------------------

function Workers({rows, query, setQuery, give}) {
  const sort = query.sort ? {key: query.sort, down: query.down === "true"} : null;
  const columns = useMemo(() => workerColumns(give), [give !== null, query.queue]);
  return html`<${Table}
    label="Workers"
    columns=${columns}
    rows=${rows}
    rowKey=${(row) => row.node}
    onOpen=${(row) => navigate(link(["workers"], {node: row.node}))}
    rowKeys=${give ? {r: [(row) => row.in_flight > 0 && give(row), "Return what the worker holds"]} : {}}
    rowClass=${(row) => (row.state === "gone" ? "gone" : "")}
    sort=${sort}
    onSort=${({key, down}) => setQuery({sort: key, down})}
    empty=${html`<${NoMatch} setQuery=${setQuery} />`}
  />`;
}

function workerColumns(give) {
  const number = (key, label, of, {show = count, kind = "", title, ...more} = {}) => ({
    key,
    label,
    align: "end",
    sort: of,
    render: (row) =>
      html`<span class=${of(row) ? kind : "zero"} title=${title?.(row)}>${show(of(row))}</span>`,
    ...more,
  });
  return [
    {
      key: "node",
      label: "Worker",
      sort: (row) => row.node,
      render: (row) => html`<span class="topic-name"
        ><a href=${link(["workers"], {node: row.node})} title=${row.node}><bdi>${row.node}</bdi></a
        ></span
      >`,
    },
    {
      key: "state",
      label: "State",
      width: "88px",
      sort: (row) => row.state,
      render: (row) => html`<${WorkerState} state=${row.state} />`,
    },
    {
      key: "queues",
      label: "Queues",
      width: "230px",
      hideOnPhone: true,
      sort: (row) => row.queues.length,
      render: (row) => html`<${QueueNames} queues=${row.queues} />`,
    },
    number("in_hand", "In hand", (row) => row.in_flight, {width: "76px"}),
    {
      key: "left",
      label: "Lease left",
      align: "end",
      width: "92px",
      hideOnPhone: true,
      sort: (row) => row.jobs[0]?.deadline,
      render: (row) => html`<${LeaseLeft} deadline=${row.jobs[0]?.deadline} />`,
    },
    number("rate", "Done/s", (row) => row.acked_per_s, {show: rate, width: "74px", hideOnPhone: true}),
    number("done", "Done", (row) => row.acked, {width: "92px", hideOnPhone: true}),
    number("failures", "Failures", failures, {kind: "bad-text", title: failuresText, width: "80px", hideOnPhone: true}),
    {
      key: "seen",
      label: "Last seen",
      align: "end",
      width: "104px",
      sort: (row) => row.last_seen_ts,
      render: (row) => html`<${Time} at=${row.last_seen_ts} />`,
    },
    {
      key: "do",
      label: html`<span class="hidden">Actions</span>`,
      width: give ? "92px" : "12px",
      align: "end",
      hideOnPhone: true,
      render: (row) =>
        give &&
        row.in_flight > 0 &&
        html`<span class="row-actions">
          <button class="small" onClick=${() => give(row)}>Return…<span class="hidden"> jobs of ${row.node}</span></button>
        </span>`,
    },
  ];
}

function QueueNames({queues}) {
  const shown = [...queues].sort((a, b) => b.in_flight - a.in_flight).slice(0, QUEUES_SHOWN);
  const rest = queues.length - shown.length;
  return html`<span class="queue-names" title=${queues.map((queue) => queue.topic).join(", ")}>
    ${shown.map(
      (queue, i) => html`${i > 0 && ", "}<a key=${queue.topic} href=${link(["queues", queue.topic])}><bdi>${queue.topic}</bdi></a>`,
    )}
    ${rest > 0 && html`<span class="soft"> and ${count(rest)} more</span>`}
  </span>`;
}

function NoMatch({setQuery}) {
  return html`<${Empty} text="No worker matches this filter.">
    <button onClick=${() => setQuery({q: null, state: null})}>Show all</button>
  <//>`;
}

function NoWorker({query, setQuery}) {
  const queue = query.queue ?? "mails";
  const text = query.queue
    ? html`No worker was seen on <b><bdi>${query.queue}</bdi></b> since the server started. Start one, or take a job by hand:`
    : "No worker was seen since the server started. Start one, or take a job by hand; it shows up here at once:";
  const command = [
    `curl -X POST ${location.origin}${"/v0/topics/"}${encodeURIComponent(queue)}/claim \\`,
    `  -H 'content-type: application/json' -d '{"node":"by-hand","max":1}'`,
  ].join("\n");
  return html`<${Empty} text=${text} command=${command}>
    ${query.queue && html`<button onClick=${() => setQuery({queue: null})}>Show the workers of all queues</button>`}
  <//>`;
}
