// The jobs of a queue: find some of any number, and do the same to all of them.

import {html, useMemo, useState} from "../vendor/htm-preact.js";
import {api, apiPath, useCan} from "../api.js";
import {feedNow, useFeed} from "../feed.js";
import {count, counted, duration} from "../format.js";
import {ChangeDialog} from "../jobs/change_dialog.js";
import {ExportDialog} from "../jobs/export_dialog.js";
import {FILTERS, FilterBar, filterBody, filtersOf, inWords} from "../jobs/filters.js";
import {JobOperations} from "../jobs/operations.js";
import {ACTIONS, STATE_NAMES, markOf} from "../jobs/states.js";
import {useKeys} from "../keyboard.js";
import {Empty} from "../parts/empty.js";
import {Page} from "../parts/page.js";
import {HowFar} from "../parts/progress.js";
import {Time} from "../parts/time.js";
import {VirtualList} from "../parts/virtual_list.js";
import {link, navigate, useQuery} from "../router.js";

const PER_PAGE = 100;
const SHOWN_CHARS = 240;

export default function JobsPage({params}) {
  const {queue} = params;
  const [query, setQuery] = useQuery();
  const filters = filtersOf(query);
  const search = new URLSearchParams(filters).toString();
  const [round, setRound] = useState(0);
  const [open, setOpen] = useState(null);
  const [started, setStarted] = useState(null);
  const [loaded, setLoaded] = useState(null);
  const selection = useSelection(`${queue} ${search}`);
  const reload = () => setRound((n) => n + 1);
  const fetchPage = async (cursor, signal) => {
    const path = `${apiPath("topics", queue, "jobs")}?${search}&limit=${PER_PAGE}&after=${cursor ?? 0}`;
    const page = await api.get(path, {signal});
    setLoaded((before) => ({
      at: cursor === null ? Date.now() : before?.at,
      scanned: page.scanned + (cursor === null ? 0 : (before?.scanned ?? 0)),
    }));
    return {rows: page.jobs, next: page.next_after ?? null};
  };
  useKeys({r: [reload, "Load the list again"], Escape: selection.clear});
  const crumbs = [["Queues", link([])], [queue, link(["queues", queue])]];
  const words = inWords(filters);
  const whole = words ? `all jobs: ${words}` : "all jobs";
  const what = selection.isAll ? whole : counted(selection.keys.size, "selected job");
  const act = (action) => {
    const chosen = selection.isAll ? {...filterBody(filters), ...bound(queue, selection.rows)} : {seqs: [...selection.keys]};
    setOpen({kind: "change", action, chosen, what});
  };
  return html`<${Page} title="Jobs" crumbs=${crumbs} actions=${html`<${HeadActions} loaded=${loaded} reload=${reload} onExport=${() => setOpen({kind: "export", isAll: selection.keys.size === 0})} />`}>
    <${FilterBar} queue=${queue} filters=${filters} setQuery=${setQuery} />
    <${JobOperations} queue=${queue} started=${started} onChange=${reload} />
    <${SelectionBar} selection=${selection} filters=${filters} onAct=${act} />
    <${VirtualList}
      label=${`Jobs of ${queue}`}
      noun="job"
      columns=${columnsOf(queue, selection.rows)}
      rowKey=${(job) => job.$seq}
      resetKey=${`${queue} ${search} ${round}`}
      fetchPage=${fetchPage}
      selected=${selection.isAll ? EVERY : selection.keys}
      onSelect=${(job) => selection.toggle(job.$seq)}
      onRows=${selection.onRows}
      onOpen=${(job) => navigate(link(["queues", queue, "jobs", job.$seq]))}
      empty=${html`<${NoJobs} queue=${queue} filters=${filters} words=${words} setQuery=${setQuery} />`}
    />
    ${open?.kind === "change" &&
    html`<${ChangeDialog}
      queue=${queue}
      action=${open.action}
      filter=${open.chosen}
      what=${open.what}
      onClose=${() => setOpen(null)}
      onStarted=${(operation) => {
        setStarted(operation);
        selection.clear();
      }}
    />`}
    ${open?.kind === "export" &&
    html`<${ExportDialog}
      queue=${queue}
      search=${search}
      seqs=${open.isAll || selection.isAll ? null : [...selection.keys]}
      what=${open.isAll || selection.isAll ? whole : what}
      onClose=${() => setOpen(null)}
    />`}
  <//>`;
}

/** What is written from now on is not selected: the count that is shown stays right. */
function bound(queue, rows) {
  const head = feedNow().topics.get(queue)?.head_seq;
  if (head === undefined) return {};
  return {before_seq: Math.max(head, rows.at(-1)?.$seq ?? 0) + 1};
}

/** A set that has everything: what all that match looks like in the list. */
const EVERY = {has: () => true};

/** Which jobs are selected: some by hand, or all that match. Another filter ends it. */
function useSelection(resetKey) {
  const none = {keys: new Set(), isAll: false, resetKey};
  const [state, setState] = useState(none);
  const [rows, setRows] = useState([]);
  const current = state.resetKey === resetKey ? state : none;
  const set = (changes) => setState({...current, ...changes});
  const toggle = (key) => {
    const keys = new Set(current.isAll ? [] : current.keys);
    if (!keys.delete(key)) keys.add(key);
    set({keys, isAll: false});
  };
  return {
    keys: current.keys,
    isAll: current.isAll,
    rows,
    onRows: setRows,
    toggle,
    clear: () => set({keys: new Set(), isAll: false}),
    selectAll: () => set({keys: new Set(), isAll: true}),
    selectLoaded: () => set({keys: new Set(rows.map((job) => job.$seq)), isAll: false}),
  };
}

function HeadActions({loaded, reload, onExport}) {
  return html`
    ${loaded && html`<span class="soft number loaded">As of <${Time} at=${loaded.at} /></span>`}
    <button onClick=${reload} title="Load the list again (r)">Refresh</button>
    <button onClick=${onExport}>Export…</button>
  `;
}

/** What is selected, and what can be done to it. */
function SelectionBar({selection, filters, onAct}) {
  const mayAdmin = useCan("admin");
  const mayDelete = useCan("delete");
  const {keys, isAll, rows} = selection;
  const states = filters.state ? filters.state.split(",") : Object.keys(STATE_NAMES);
  const usable = Object.entries(ACTIONS).filter(
    ([name, action]) => mayAdmin && (name !== "cancel" || mayDelete) && action.states.some((state) => states.includes(state)),
  );
  const hasSome = isAll || keys.size > 0;
  useKeys({
    a: [() => (isAll ? selection.clear() : selection.selectAll()), "Select all jobs that match, or none"],
    ...Object.fromEntries(
      Object.entries(ACTIONS).map(([name, action]) => [
        action.key,
        [() => hasSome && usable.some(([one]) => one === name) && onAct(name), `${action.label} what is selected`],
      ]),
    ),
  });
  if (!mayAdmin) return null;
  const words = isAll
    ? html`<b>All jobs that match</b> are selected`
    : keys.size > 0
      ? html`<b class="number">${counted(keys.size, "job")}</b> selected`
      : html`<span class="soft">Nothing is selected</span>`;
  return html`<div class=${`selection-bar ${hasSome ? "has-some" : ""}`} role="group" aria-label="Selected jobs">
    <span class="selected-words" role="status">${words}</span>
    <span class="selection-choices">
      ${!isAll && html`<button class="small" onClick=${selection.selectAll}>Select all that match</button>`}
      ${!hasSome && rows.length > 0 && html`<button class="small wide-only" onClick=${selection.selectLoaded}>Select the ${count(rows.length)} loaded</button>`}
      ${hasSome && html`<button class="small quiet" onClick=${selection.clear}>Clear</button>`}
    </span>
    <span class="selection-actions">
      ${usable.map(
        ([name, action]) => html`<button
          key=${name}
          class=${action.danger ? "danger" : ""}
          disabled=${!hasSome}
          title=${`${action.label} (${action.key})`}
          onClick=${() => onAct(name)}
        >
          ${action.label}…
        </button>`,
      )}
    </span>
  </div>`;
}

/** Priority, group and progress have columns where a job that is loaded has one. */
function columnsOf(queue, rows) {
  const columns = [
    {key: "seq", label: "Job", width: "78px", className: "seq", render: (job) => html`<a href=${link(["queues", queue, "jobs", job.$seq])}>${String(job.$seq)}</a>`},
    {key: "state", label: "State", width: "88px", render: (job) => html`<span class=${markOf(job.state)}>${STATE_NAMES[job.state] ?? job.state}</span>`},
    {key: "age", label: "Age", width: "96px", align: "end", render: (job) => html`<span title=${new Date(job.$ts).toISOString()}>${duration(job.age_ms)}</span>`},
    {key: "deliveries", label: "Runs", width: "58px", align: "end", hideOnPhone: true, render: (job) => html`<span class=${job.deliveries ? "" : "zero"} title="Deliveries">${count(job.deliveries)}</span>`},
    {key: "until", label: "Until, worker", width: "146px", hideOnPhone: true, render: (job) => html`<${Place} job=${job} />`},
    rows.some((job) => job.progress !== undefined || job.note !== undefined) && {
      key: "progress",
      label: "Progress",
      width: "120px",
      hideOnPhone: true,
      render: (job) => html`<${HowFar} job=${job} />`,
    },
    rows.some((job) => job.priority > 0) && {
      key: "priority",
      label: "Priority",
      width: "74px",
      align: "end",
      hideOnPhone: true,
      render: (job) => html`<span class=${job.priority ? "" : "zero"}>${count(job.priority ?? 0)}</span>`,
    },
    rows.some((job) => job.group !== undefined) && {
      key: "group",
      label: "Group",
      width: "108px",
      hideOnPhone: true,
      render: (job) => html`<${Text} text=${job.group} />`,
    },
    {key: "tag", label: "Tag", width: "108px", hideOnPhone: true, render: (job) => html`<${Text} text=${job.$tag} />`},
    {key: "key", label: "Key", width: "108px", hideOnPhone: true, className: "key-column", render: (job) => html`<${Text} text=${job.$key} />`},
    {key: "data", label: "Data, last error", className: "data-column", render: (job) => html`<${Data} job=${job} />`},
  ];
  return columns.filter(Boolean);
}

function Text({text}) {
  if (text === undefined) return html`<span class="zero">–</span>`;
  return html`<bdi title=${text}>${text.slice(0, SHOWN_CHARS)}</bdi>`;
}

function Place({job}) {
  const at = job.deadline ?? job.not_before;
  if (at === undefined) return html`<span class="zero">–</span>`;
  return html`<${Time} at=${at} />${job.node !== undefined && html` <bdi class="soft" title=${job.node}>${job.node.slice(0, 60)}</bdi>`}`;
}

function Data({job}) {
  const text = useMemo(() => visible((JSON.stringify(job.data) ?? "").slice(0, SHOWN_CHARS)), [job]);
  const error = job.last_error?.split(/\s*\n/, 1)[0];
  return html`${error !== undefined && html`<bdi class="row-error" title=${job.last_error.slice(0, 1000)}>${error.slice(0, SHOWN_CHARS)}</bdi> `}<bdi class="mono">${text}</bdi>`;
}

/** Marks that turn the direction of text are shown, not obeyed: one line must not look like another. */
function visible(text) {
  return text.replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16)}`);
}

function NoJobs({queue, filters, words, setQuery}) {
  const exists = useFeed((feed) => feed.topics.size === 0 || feed.topics.has(queue));
  const clear = () => setQuery(Object.fromEntries(FILTERS.map((name) => [name, null])));
  if (words) {
    return html`<${Empty} text=${html`No job is there that fits: <bdi>${words}</bdi>.`}><button onClick=${clear}>Show all jobs</button><//>`;
  }
  if (!exists) return html`<${Empty} text=${html`There is no queue <bdi>${queue}</bdi>, or this key may not see it.`} />`;
  const command = `curl ${location.origin}${apiPath("topics", queue)} -H 'content-type: application/json' \\
  -d '{"records": [{"data": {"hello": "world"}}]}'`;
  return html`<${Empty} text="This queue has no jobs now: all are done, or none was written yet." command=${command} />`;
}
