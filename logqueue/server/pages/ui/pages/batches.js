// Batches: how many of their jobs are done, have failed, and are left.

import {html, useMemo} from "../vendor/htm-preact.js";
import {api, apiPath, useApi, useCan} from "../api.js";
import {count, counted} from "../format.js";
import {confirmDialog, Dialog} from "../parts/dialog.js";
import {Empty} from "../parts/empty.js";
import {JsonView} from "../parts/json_view.js";
import {NameFilter} from "../parts/name_filter.js";
import {notify, notifyError} from "../parts/notices.js";
import {Page} from "../parts/page.js";
import {Table} from "../parts/table.js";
import {Time} from "../parts/time.js";
import {link, useQuery} from "../router.js";

const EVERY_MS = 2000;
const SHOWN_MAX = 1000;
/** What replies show in place of a name outside the prefixes of the key. */
const HIDDEN = "<hidden>";

export default function BatchesPage() {
  const [query, setQuery] = useQuery();
  const {data, error, reload} = useApi(`/v0/batches?page_size=${SHOWN_MAX}`, {every: EVERY_MS});
  const all = data?.batches ?? [];
  const rows = useMemo(() => all.filter(({batch}) => batch.toLowerCase().includes((query.q ?? "").toLowerCase())), [data, query.q]);
  return html`<${Page} title="Batches">
    ${error && html`<p class="refusal" role="alert">${error.message}</p>`}
    ${data === null
      ? !error && html`<p class="loading">Asking the server for the batches…</p>`
      : all.length === 0
        ? html`<${NoBatch} />`
        : html`<div class="toolbar"><${NameFilter} query=${query} setQuery=${setQuery} /></div>
            <${Batches} rows=${rows} query=${query} setQuery=${setQuery} />
            ${data.next_cursor && html`<p class="soft">The first ${count(all.length)} by name are shown; <code>logqueue batches list</code> lists all.</p>`}`}
    ${query.batch && html`<${BatchView} name=${query.batch} onChange=${reload} onClose=${() => setQuery({batch: null})} />`}
  <//>`;
}

function Batches({rows, query, setQuery}) {
  const sort = query.sort ? {key: query.sort, down: query.down === "true"} : null;
  return html`<${Table}
    label="Batches"
    columns=${COLUMNS}
    rows=${rows}
    rowKey=${(row) => row.batch}
    onOpen=${(row) => setQuery({batch: row.batch}, {push: true})}
    sort=${sort}
    onSort=${({key, down}) => setQuery({sort: key, down})}
    empty=${html`<${Empty} text="No batch matches this filter."><button onClick=${() => setQuery({q: null})}>Show all</button><//>`}
  />`;
}

const number = (name, kind = "") => (row) => html`<span class=${row[name] ? kind : "zero"}>${count(row[name])}</span>`;
const COLUMNS = [
  {
    key: "batch",
    label: "Batch",
    sort: (row) => row.batch,
    render: (row) => html`<span class="topic-name"
      ><a href=${link(["batches"], {batch: row.batch})} title=${row.batch}><bdi>${row.batch}</bdi></a
    ></span>`,
  },
  {key: "state", label: "State", width: "88px", sort: (row) => row.state, render: (row) => html`<${BatchMark} batch=${row} />`},
  {key: "bar", label: "Jobs", width: "150px", hideOnPhone: true, render: (row) => html`<${Bar} batch=${row} />`},
  {key: "done", label: "Done", width: "82px", align: "end", sort: (row) => row.done, render: number("done")},
  {key: "failed", label: "Failed", width: "82px", align: "end", hideOnPhone: true, sort: (row) => row.failed, render: number("failed", "bad-text")},
  {key: "left", label: "Left", width: "82px", align: "end", sort: (row) => row.left, render: number("left")},
  {key: "created", label: "Opened", width: "132px", align: "end", hideOnPhone: true, sort: (row) => row.created_at, render: (row) => html`<${Time} at=${row.created_at} />`},
  {
    key: "ended",
    label: "Ended",
    width: "132px",
    align: "end",
    hideOnPhone: true,
    sort: (row) => row.ended_at,
    render: (row) => (row.ended_at ? html`<${Time} at=${row.ended_at} />` : html`<span class="zero">–</span>`),
  },
];

const STATES = {
  open: ["info", "Open", "More jobs may join"],
  closed: ["", "Closed", "It ends with its last job"],
  ended: ["ok", "Ended", "All of its jobs have ended"],
};

function BatchMark({batch}) {
  if (batch.last_error) return html`<span class="mark bad" title=${batch.last_error.message ?? ""}>Failing</span>`;
  const [kind, label, title] = STATES[batch.state] ?? ["", batch.state, ""];
  return html`<span class=${`mark ${batch.state === "ended" && batch.failed > 0 ? "warn" : kind}`} title=${title}>${label}</span>`;
}

/** Done and failed jobs among all that joined. */
function Bar({batch: {joined, done, failed, left}}) {
  const share = (jobs) => ({width: `${(100 * jobs) / Math.max(joined, 1)}%`});
  return html`<span class="batch-bar" role="img" aria-label=${`${count(done)} done, ${count(failed)} failed, ${count(left)} left`}>
    <i class="done" style=${share(done)} /><i class="failed" style=${share(failed)} />
  </span>`;
}

function BatchView({name, onChange, onClose}) {
  const {data, error, reload} = useApi(apiPath("batches", name), {every: EVERY_MS});
  const changed = () => {
    reload();
    onChange();
  };
  const removed = () => {
    onChange();
    onClose();
  };
  return html`<${Dialog} title=${name} wide onClose=${onClose}>
    ${error && html`<p class="refusal" role="alert">${error.message}</p>`}
    ${data === null
      ? !error && html`<p class="loading">Asking the server for the batch…</p>`
      : html`<${Facts} batch=${data} />
          <${Callback} title="Once all are done" callback=${data.on_done} />
          <${Callback} title="If some have failed" callback=${data.on_problem} />
          <${Actions} batch=${data} onChange=${changed} onRemoved=${removed} />`}
  <//>`;
}

function Facts({batch}) {
  const {last_error: problem, joined, done, failed, left} = batch;
  const time = (label, at) => at && html`<div><dt>${label}</dt><dd><${Time} at=${at} /></dd></div>`;
  return html`
    ${problem && html`<p class="refusal" role="status">What it writes at its end is refused: ${problem.message}. It is tried again.</p>`}
    <dl class="words">
      <div><dt>State</dt><dd><${BatchMark} batch=${batch} /></dd></div>
      <div><dt>Jobs</dt><dd>${counted(joined, "job")} joined: ${count(done)} done, ${count(failed)} failed, ${count(left)} left <${Bar} batch=${batch} /></dd></div>
      ${time("Opened", batch.created_at)} ${time("Closed", batch.closed_at)} ${time("Ended", batch.ended_at)}
    </dl>
  `;
}

function Callback({title, callback}) {
  if (!callback) return null;
  const {topic, record} = callback;
  return html`<h3>${title}</h3>
    <p>
      ${topic === HIDDEN
        ? html`<span class="soft">A record in a topic that this key may not see</span>`
        : html`A job in <a href=${link(["queues", topic])}><bdi>${topic}</bdi></a>`}
    </p>
    <${JsonView} value=${record} label=${title} />`;
}

function Actions({batch, onChange, onRemoved}) {
  const mayClose = useCan("write") && batch.state === "open";
  const mayDelete = useCan("delete") && batch.left === 0;
  if (!mayClose && !mayDelete) return null;
  return html`<div class="dialog-actions">
    ${mayDelete && html`<button class="danger" onClick=${() => deleteBatch(batch, onRemoved)}>Delete…</button>`}
    ${mayClose && html`<button class="primary" onClick=${() => closeBatch(batch, onChange)}>Close the batch…</button>`}
  </div>`;
}

async function closeBatch({batch, left}, onDone) {
  const isSure = await confirmDialog({
    title: `Close ${batch}`,
    body: left > 0 ? `It ends with the last of the ${counted(left, "job")} that are left. Only these may add more jobs.` : "No job is left: it ends at once.",
    confirm: "Close it for good",
  });
  if (!isSure) return;
  try {
    await api.post(apiPath("batches", batch, "close"));
    notify(`${batch} closed`);
  } catch (error) {
    notifyError(error, `${batch} is not closed`);
  }
  onDone();
}

async function deleteBatch({batch, state}, onDone) {
  const isSure = await confirmDialog({
    title: `Delete ${batch}`,
    body: state === "ended" ? "Its counts are forgotten. Jobs and records stay." : "It is forgotten, and writes nothing: jobs can no longer join it.",
    confirm: "Delete the batch",
    danger: true,
  });
  if (!isSure) return;
  try {
    await api.del(apiPath("batches", batch));
    notify(`${batch} deleted`);
    onDone();
  } catch (error) {
    notifyError(error, `${batch} is not deleted`);
  }
}

function NoBatch() {
  const command = [
    `curl ${location.origin}/v0/batches -H 'content-type: application/json' \\`,
    `  -d '{"name":"import-17","on_done":{"topic":"reports","record":{"data":{"import":17}}}}'`,
  ].join("\n");
  return html`<${Empty} text="There is no batch. One counts jobs that belong together, and writes a record once all of them have ended:" command=${command} />`;
}
