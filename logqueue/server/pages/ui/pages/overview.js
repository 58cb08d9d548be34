// Overview: what needs attention, and every queue and log in one table.

import {html, useMemo, useState} from "../vendor/htm-preact.js";
import {api, apiPath, hasKey, useCan} from "../api.js";
import {now} from "../clock.js";
import {useFeed} from "../feed.js";
import {count, counted, rate, size} from "../format.js";
import {AttentionList} from "../parts/attention.js";
import {Dialog, Refusal} from "../parts/dialog.js";
import {Empty} from "../parts/empty.js";
import {Marks} from "../parts/marks.js";
import {NameFilter} from "../parts/name_filter.js";
import {notify} from "../parts/notices.js";
import {Page} from "../parts/page.js";
import {Sparkline} from "../parts/sparkline.js";
import {Table} from "../parts/table.js";
import {Age, Time} from "../parts/time.js";
import {setPaused} from "../pausing.js";
import {link, navigate, useQuery} from "../router.js";
import {stored} from "../store.js";

const pins = stored("localStorage", "logqueue.pins", []);
const KINDS = [
  ["queue", "Queues"],
  ["log", "Logs"],
];

export default function OverviewPage() {
  const [topics, status, attention, isCut] = useFeed((feed) => [
    feed.topics,
    feed.status,
    feed.attention,
    feed.truncated,
  ]);
  const [query, setQuery] = useQuery();
  const [isCreating, setCreating] = useState(false);
  const mayCreate = useCan("admin");
  const kind = query.show === "log" ? "log" : "queue";
  const all = useMemo(() => [...topics.values()].sort(byName), [topics]);
  const rows = useMemo(() => filtered(all, kind, query.q), [all, kind, query.q]);
  const isWaiting = status === "connecting" && topics.size === 0;
  const create = mayCreate && html`<button onClick=${() => setCreating(true)}>New queue…</button>`;
  return html`
    <${Page} title="Queues" actions=${create}>
      ${isWaiting
        ? html`<p class="soft">Waiting for the first numbers from the server…</p>`
        : topics.size === 0
          ? html`<${NothingYet} isLive=${status === "live"} />`
          : html`
              <${Attention} entries=${attention} />
              <${Totals} topics=${all} />
              ${isCut &&
              html`<p class="problem">
                The server has more topics than this page can follow: the first ${count(topics.size)} by
                name are shown. A key with a prefix shows those of the prefix.
              </p>`}
              <${Filter} query=${query} setQuery=${setQuery} kind=${kind} all=${all} />
              ${kind === "queue"
                ? html`<${Queues} rows=${rows} query=${query} setQuery=${setQuery} />`
                : html`<${Logs} rows=${rows} query=${query} setQuery=${setQuery} />`}
            `}
      ${isCreating && html`<${NewQueue} onClose=${() => setCreating(false)} />`}
    <//>
  `;
}

function byName(a, b) {
  return a.name < b.name ? -1 : 1;
}

function filtered(topics, kind, text = "") {
  const wanted = text.toLowerCase();
  return topics.filter((topic) => topic.type === kind && topic.name.toLowerCase().includes(wanted));
}

// -- what needs attention ----------------------------------------------------------------------

function Attention({entries}) {
  if (entries.length > 0) return html`<${AttentionList} entries=${entries} />`;
  return html`<p class="fine-line"><i class="dot ok" />Nothing needs attention.</p>`;
}

// -- totals and filter -------------------------------------------------------------------------

function Totals({topics}) {
  const sums = useMemo(() => summed(topics), [topics]);
  const cells = [
    ["Ready", count(sums.ready)],
    ["In flight", count(sums.in_flight)],
    ["Delayed", count(sums.delayed)],
    ["Held", count(sums.held)],
    ["Dead", count(sums.dead)],
    ["In per s", rate(sums.appended)],
    ["Out per s", rate(sums.acked)],
  ];
  return html`<dl class="totals" aria-label="All queues together">
    ${cells.map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

function summed(topics) {
  const sums = {ready: 0, in_flight: 0, delayed: 0, held: 0, dead: 0, appended: 0, acked: 0};
  const letters = new Set();
  for (const topic of topics) {
    if (topic.type !== "queue") continue;
    for (const name of ["ready", "in_flight", "delayed", "held"]) sums[name] += topic[name] ?? 0;
    // Queues may share a topic of dead letters.
    if (topic.dead_letter && !letters.has(topic.dead_letter)) sums.dead += topic.dead ?? 0;
    letters.add(topic.dead_letter);
    sums.appended += topic.rates?.appended ?? 0;
    sums.acked += topic.rates?.acked ?? 0;
  }
  return sums;
}

function Filter({query, setQuery, kind, all}) {
  return html`<div class="toolbar">
    <${NameFilter} query=${query} setQuery=${setQuery} />
    <div class="segmented" role="group" aria-label="What is shown">
      ${KINDS.map(
        ([name, label]) => html`<button
          key=${name}
          aria-pressed=${kind === name}
          onClick=${() => setQuery({show: name === "queue" ? null : name, sort: null, down: null})}
        >
          ${label} <span class="soft">${count(all.filter((topic) => topic.type === name).length)}</span>
        </button>`,
      )}
    </div>
  </div>`;
}

// -- the tables --------------------------------------------------------------------------------

function useSort(query, setQuery) {
  const sort = query.sort ? {key: query.sort, down: query.down === "true"} : null;
  return {sort, onSort: ({key, down}) => setQuery({sort: key, down})};
}

function usePins() {
  const [names, setNames] = useState(() => new Set(pins.get()));
  const keep = (next) => {
    pins.set([...next]);
    setNames(next);
  };
  const toggle = ({name}) => {
    const before = names;
    const next = new Set(names);
    if (!next.delete(name)) next.add(name);
    keep(next);
    notify(next.has(name) ? `${name} stays on top` : `${name} is not pinned now`, {undo: () => keep(before)});
  };
  const pinned = useMemo(() => (row) => names.has(row.name), [names]);
  return {pinned, toggle};
}

function Pin({row, isPinned, toggle}) {
  const label = isPinned ? "Unpin" : "Pin";
  return html`<button
    class="quiet pin"
    aria-pressed=${isPinned}
    title=${isPinned ? "Unpin" : "Keep on top"}
    onClick=${() => toggle(row)}
  >
    <span aria-hidden="true">${isPinned ? "★" : "☆"}</span
    ><span class="hidden">${label} ${row.name}</span>
  </button>`;
}

function Name({row, children}) {
  return html`<span class="topic-name"
    ><a href=${link(row.type === "queue" ? ["queues", row.name] : ["log", row.name])} title=${row.name}
      ><bdi>${row.name}</bdi></a
    >${children}</span
  >`;
}

function Queues({rows, query, setQuery}) {
  const {sort, onSort} = useSort(query, setQuery);
  const {pinned, toggle} = usePins();
  const [selected, setSelected] = useState(new Set());
  const mayPause = useCan("admin");
  const select = ({name}) => {
    const next = new Set(selected);
    if (!next.delete(name)) next.add(name);
    setSelected(next);
  };
  const columns = useMemo(() => queueColumns({pinned, toggle, mayPause}), [pinned, mayPause]);
  const change = (paused) => {
    setPaused([...selected], paused);
    setSelected(new Set());
  };
  return html`
    <${Table}
      label="Queues"
      columns=${columns}
      rows=${rows}
      rowKey=${(row) => row.name}
      onOpen=${(row) => navigate(link(["queues", row.name]))}
      selected=${mayPause ? selected : undefined}
      onSelect=${mayPause ? select : undefined}
      rowKeys=${{
        p: [toggle, "Pin or unpin the row"],
        ...(mayPause && {" ": [(row) => setPaused([row.name], !row.paused), "Pause or resume the row"]}),
      }}
      sort=${sort}
      onSort=${onSort}
      pinned=${pinned}
      rowClass=${(row) => (row.paused ? "paused" : "")}
      empty=${html`<${NoMatch} query=${query} setQuery=${setQuery} noun="queue" />`}
    />
    ${selected.size > 0 &&
    html`<div class="toolbar chosen-bar" role="status">
      <span>${counted(selected.size, "queue")} selected</span>
      <button onClick=${() => change(true)}>Pause</button>
      <button onClick=${() => change(false)}>Resume</button>
      <button class="quiet" onClick=${() => setSelected(new Set())}>Clear</button>
    </div>`}
  `;
}

function number(label, key, {of = (row) => row[key], show = count, width = "76px", kind, ...more} = {}) {
  return {
    key,
    label,
    align: "end",
    width,
    sort: of,
    render: (row) => {
      const value = of(row);
      if (!value) return html`<span class="zero">${value === null || value === undefined ? "–" : show(value)}</span>`;
      const place = more.place?.(row);
      const text = html`<span class=${kind ?? ""}>${show(value)}</span>`;
      return place ? html`<a class="number-link" href=${place}>${text}</a>` : text;
    },
    ...more,
  };
}

function jobsIn(state) {
  return (row) => link(["queues", row.name, "jobs"], {state});
}

function queueColumns({pinned, toggle, mayPause}) {
  const columns = [
    {
      key: "name",
      label: "Queue",
      sort: (row) => row.name,
      render: (row) => html`<${Name} row=${row}><${Marks} topic=${row} /><//>`,
    },
    number("Ready", "ready", {place: jobsIn("ready")}),
    number("In flight", "in_flight", {place: jobsIn("in_flight"), width: "68px"}),
    number("Delayed", "delayed", {place: jobsIn("delayed"), hideOnPhone: true, width: "70px"}),
    number("Held", "held", {place: jobsIn("held"), kind: "warn-text", hideOnPhone: true, width: "54px"}),
    number("Dead", "dead", {
      place: (row) => link(["dead-letters"], {queue: row.name}),
      kind: "bad-text",
      hideOnPhone: true,
      width: "64px",
    }),
    number(IN_LABEL, "in", {of: (row) => row.rates?.appended, show: rate, hideOnPhone: true, width: "66px"}),
    number(OUT_LABEL, "out", {of: (row) => row.rates?.acked, show: rate, hideOnPhone: true, width: "70px"}),
    trend("Last minute", (row) => `in ${rate(row.rates?.appended)}, out ${rate(row.rates?.acked)} per second`),
    {
      key: "oldest",
      label: "Oldest",
      align: "end",
      width: "104px",
      sort: oldestAge,
      render: (row) => html`<${Age} since=${row.oldest_ready_at} />`,
    },
    number("Workers", "workers", {
      place: (row) => link(["workers"], {queue: row.name}),
      hideOnPhone: true,
      width: "70px",
    }),
    {
      key: "do",
      label: html`<span class="hidden">Actions</span>`,
      width: mayPause ? "122px" : "48px",
      align: "end",
      hideOnPhone: true,
      render: (row) => html`<span class="row-actions">
        ${mayPause &&
        html`<button class="small" onClick=${() => setPaused([row.name], !row.paused)}>
          ${row.paused ? "Resume" : "Pause"}<span class="hidden"> ${row.name}</span>
        </button>`}
        <${Pin} row=${row} isPinned=${pinned(row)} toggle=${toggle} />
      </span>`,
    },
  ];
  return columns;
}

const IN_LABEL = html`<i class="swatch swatch--chart-1" />In/s`;
const OUT_LABEL = html`<i class="swatch swatch--chart-2" />Out/s`;

function trend(label, words) {
  return {
    key: "trend",
    label,
    width: "120px",
    hideOnPhone: true,
    render: (row) =>
      html`<${Sparkline} values=${row.recent?.in ?? []} second=${row.recent?.out ?? null} label=${words(row)} />`,
  };
}

function oldestAge(row) {
  const at = row.oldest_ready_at;
  return at === null || at === undefined ? null : now() - at;
}

function Logs({rows, query, setQuery}) {
  const {sort, onSort} = useSort(query, setQuery);
  const {pinned, toggle} = usePins();
  const columns = useMemo(() => logColumns({pinned, toggle}), [pinned]);
  return html`<${Table}
    label="Logs"
    columns=${columns}
    rows=${rows}
    rowKey=${(row) => row.name}
    onOpen=${(row) => navigate(link(["log", row.name]))}
    rowKeys=${{p: [toggle, "Pin or unpin the row"]}}
    sort=${sort}
    onSort=${onSort}
    pinned=${pinned}
    empty=${html`<${NoMatch} query=${query} setQuery=${setQuery} noun="log" />`}
  />`;
}

function logColumns({pinned, toggle}) {
  return [
    {key: "name", label: "Log", sort: (row) => row.name, render: (row) => html`<${Name} row=${row} />`},
    number("Records", "count", {width: "104px"}),
    number("Size", "bytes", {show: size, width: "90px"}),
    number("Last seq", "head_seq", {width: "110px", hideOnPhone: true}),
    number(IN_LABEL, "in", {of: (row) => row.rates?.appended, show: rate, width: "74px", hideOnPhone: true}),
    trend("Last minute", (row) => `${rate(row.rates?.appended)} records per second`),
    {
      key: "durability",
      label: "Durability",
      width: "100px",
      hideOnPhone: true,
      sort: (row) => row.durability,
    },
    {
      key: "do",
      label: html`<span class="hidden">Actions</span>`,
      width: "44px",
      align: "end",
      hideOnPhone: true,
      render: (row) => html`<${Pin} row=${row} isPinned=${pinned(row)} toggle=${toggle} />`,
    },
  ];
}

function NoMatch({query, setQuery, noun}) {
  if (!query.q) return html`<${Empty} text=${`There is no ${noun} yet.`} />`;
  return html`<${Empty} text=${`No ${noun} has “${query.q}” in its name.`}>
    <button onClick=${() => setQuery({q: null})}>Show all</button>
  <//>`;
}

// -- an empty server ---------------------------------------------------------------------------

function NothingYet({isLive}) {
  if (!isLive) return html`<p class="soft">No numbers have come from the server yet.</p>`;
  const key = hasKey() ? ` -H "authorization: Bearer $LOGQUEUE_TOKEN"` : "";
  const command = [
    `curl -X PUT ${location.origin}/v0/topics/mails${key} \\`,
    `  -H 'content-type: application/json' -d '{"type":"queue"}'`,
    `curl -X POST ${location.origin}/v0/topics/mails${key} \\`,
    `  -H 'content-type: application/json' -d '{"records":[{"data":{"to":"ada@example.com"}}]}'`,
  ].join("\n");
  return html`<${Empty}
    text="This server has no queues yet. Create one and put a first job into it; it shows up here at once:"
    command=${command}
  >
    <p class="soft">What a server can do is in the <a href="/docs">API reference</a>.</p>
  <//>`;
}

function NewQueue({onClose}) {
  const [name, setName] = useState("");
  const [isLog, setLog] = useState(false);
  const [error, setError] = useState(null);
  const create = async (event) => {
    event.preventDefault();
    try {
      const reply = await api.post(apiPath("topics", name, "ensure"), {type: isLog ? "log" : "queue"});
      notify(reply.created ? `${name} created` : `${name} was there already: nothing is changed`);
      onClose();
      navigate(link(isLog ? ["log", name] : ["queues", name]));
    } catch (error) {
      setError(error);
    }
  };
  return html`<${Dialog} title="New queue" onClose=${onClose}>
    <form onSubmit=${create}>
      <label class="field">
        <span>Name</span>
        <input
          autofocus
          autocomplete="off"
          spellcheck=${false}
          value=${name}
          onInput=${(event) => setName(event.target.value)}
        />
      </label>
      <label class="choice"
        ><input type="checkbox" checked=${isLog} onChange=${() => setLog(!isLog)} /> A log instead:
        records are read by any number of readers, not claimed</label
      >
      <p class="soft">Defaults are fine to begin with; all of them can be changed later.</p>
      <${Refusal} error=${error} doing="Not created" />
      <div class="dialog-actions">
        <button type="submit" class="primary" disabled=${!name}>
          Create ${isLog ? "log" : "queue"}
        </button>
      </div>
    </form>
  <//>`;
}
