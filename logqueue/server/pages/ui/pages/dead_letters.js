// Dead letters: in groups of one cause, with what to do about them.

import {html, useMemo, useState} from "../vendor/htm-preact.js";
import {useApi, useCan} from "../api.js";
import {useFeed} from "../feed.js";
import {count, counted} from "../format.js";
import {useKeys} from "../keyboard.js";
import {DropDialog, RedriveDialog} from "../letters/action_dialogs.js";
import {GroupDialog, REASONS} from "../letters/group_panel.js";
import {LetterOperations} from "../letters/operations.js";
import {Trend} from "../letters/trend.js";
import {Empty} from "../parts/empty.js";
import {Page} from "../parts/page.js";
import {Table} from "../parts/table.js";
import {Time} from "../parts/time.js";
import {link, useQuery} from "../router.js";

const EVERY_MS = 4000;
const GROUPS_MAX = 500;

export default function DeadLettersPage() {
  const [query, setQuery] = useQuery();
  const queue = query.queue ?? "";
  const [round, setRound] = useState(0);
  const [open, setOpen] = useState(null);
  const path = `/v0/dead_letters?limit=${GROUPS_MAX}`;
  const {data, error, loading, reload} = useApi(path, {every: EVERY_MS});
  const all = data?.groups ?? [];
  const search = (query.text ?? "").toLowerCase();
  const groups = useMemo(
    () => all.filter((group) => (queue === "" || group.queue === queue) && matches(group, search)),
    [data, queue, search],
  );
  const letters = groups.filter((group) => group.queue !== undefined);
  const shown = letters.reduce((sum, group) => sum + group.count, 0);
  const act = (kind, selected) => selected.length > 0 && setOpen({kind, selected});
  const close = () => setOpen(null);
  const started = () => {
    setRound((n) => n + 1);
    reload();
  };
  const whole = search === "" ? wholeSelection(data, queue) : letters.map(selectionOf);
  const what = describe(letters, queue, search, shown);
  const actions = html`<${Actions} count=${shown} onOpen=${(kind) => act(kind, whole)} />`;
  return html`<${Page} title="Dead letters" actions=${actions}>
    <${LetterOperations} round=${round} onChange=${reload} />
    <${Filters} data=${data} queue=${queue} text=${query.text ?? ""} setQuery=${setQuery} shown=${shown} groups=${groups} />
    ${error && html`<p class="problem" role="alert">The dead letters are not loaded: ${error.message}</p>`}
    ${data === null && loading && html`<p class="soft" role="status">Counting the dead letters…</p>`}
    ${data !== null &&
    html`<${Groups} groups=${groups} isFiltered=${queue !== "" || search !== ""} total=${data.total} onClear=${() => setQuery({queue: null, text: null})}
      onOpen=${(group) => setOpen({kind: "group", group})}
      onAct=${(kind, group) => act(kind, [selectionOf(group)])} />`}
    ${data?.group_count > all.length &&
    html`<p class="soft">The ${count(all.length)} largest of ${count(data.group_count)} groups are shown.</p>`}
    ${open?.kind === "group" &&
    html`<${GroupDialog}
      group=${open.group}
      onClose=${close}
      onChange=${reload}
      onRedrive=${() => setOpen({kind: "redrive", selected: [selectionOf(open.group)], what: describeGroup(open.group)})}
      onDrop=${() => setOpen({kind: "drop", selected: [selectionOf(open.group)], what: describeGroup(open.group)})}
    />`}
    ${open?.kind === "redrive" &&
    html`<${RedriveDialog} selections=${open.selected} what=${open.what ?? whatOf(open, what)} onClose=${close} onStarted=${started} />`}
    ${open?.kind === "drop" &&
    html`<${DropDialog} selections=${open.selected} what=${open.what ?? whatOf(open, what)} onClose=${close} onStarted=${started} />`}
  <//>`;
}

function whatOf(open, whole) {
  return open.selected.length === 1 && open.selected[0].group ? describeGroup(open.selected[0].group) : whole;
}

function matches(group, search) {
  if (search === "") return true;
  return [group.error, group.queue, group.topic, group.reason].some((text) => text?.toLowerCase().includes(search));
}

/** A group as the filter that selects it. */
function selectionOf(group) {
  const filter = {from: group.queue};
  if (group.reason !== undefined) filter.reason = group.reason;
  if (group.error !== undefined) filter.error = group.error;
  return {topic: group.topic, filter, group};
}

/** All letters, or all of one queue: one filter per topic. */
function wholeSelection(data, queue) {
  const filter = queue === "" ? {} : {from: queue};
  const topics = new Set((data?.groups ?? []).filter((group) => group.queue !== undefined && (queue === "" || group.queue === queue)).map((group) => group.topic));
  return [...topics].map((topic) => ({topic, filter}));
}

function describe(groups, queue, search, shown) {
  const some = counted(shown, "dead letter");
  if (search !== "") return `${some} in ${counted(groups.length, "group")}`;
  return queue === "" ? `all ${some}` : `all ${some} of ${queue}`;
}

function describeGroup(group) {
  const error = group.error ? ` with “${group.error.length > 60 ? `${group.error.slice(0, 60)}…` : group.error}”` : "";
  return `${counted(group.count, "letter")} of ${group.queue}${error}`;
}

function Actions({count: letters, onOpen}) {
  const mayWrite = useCan("write");
  const mayDelete = useCan("delete");
  const redrive = () => onOpen("redrive");
  useKeys(mayWrite && mayDelete ? {R: [redrive, "Redrive all that are shown"]} : {});
  if (letters === 0) return null;
  return html`
    ${mayDelete && html`<button class="danger" onClick=${() => onOpen("drop")}>Drop all…</button>`}
    ${mayWrite && mayDelete && html`<button class="primary" onClick=${redrive}>Redrive all…</button>`}
  `;
}

function Filters({data, queue, text, setQuery, shown, groups}) {
  const queues = [...new Set((data?.groups ?? []).map((group) => group.queue).filter((name) => name !== undefined))].sort();
  if (queue !== "" && !queues.includes(queue)) queues.push(queue);
  useKeys({"/": [() => document.getElementById("letters-search")?.focus(), "Search in errors"]});
  if (data === null || (data.groups.length === 0 && queue === "")) return null;
  return html`<div class="toolbar" role="search">
    <input
      id="letters-search"
      type="search"
      placeholder="Search errors and queues  /"
      aria-label="Search errors and queues"
      value=${text}
      onInput=${(event) => setQuery({text: event.target.value})}
    />
    <select aria-label="Queue" value=${queue} onChange=${(event) => setQuery({queue: event.target.value})}>
      <option value="">All queues</option>
      ${queues.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
    </select>
    <span class="soft number">${counted(shown, "letter")} in ${counted(groups.length, "group")}</span>
  </div>`;
}

function Groups({groups, isFiltered, total, onClear, onOpen, onAct}) {
  const mayMove = useCan("write") & useCan("delete");
  const mayDelete = useCan("delete");
  const columns = [
    {key: "error", label: "Error", sort: (group) => group.error ?? "", render: (group) => html`<${GroupError} group=${group} />`},
    {key: "queue", label: "Queue", width: "140px", hideOnPhone: true, sort: (group) => group.queue ?? "", render: (group) => html`<${Queue} group=${group} />`},
    {key: "reason", label: "Reason", width: "96px", hideOnPhone: true, sort: (group) => group.reason ?? "", render: (group) => html`<${Reason} group=${group} />`},
    {key: "count", label: "Letters", align: "end", width: "78px", sort: (group) => group.count, render: (group) => html`<b>${count(group.count)}</b>`},
    {key: "trend", label: "24 hours", width: "118px", hideOnPhone: true, sort: (group) => sum(group.per_hour), render: (group) => html`<${Trend} perHour=${group.per_hour} />`},
    {key: "first", label: "First", width: "98px", hideOnPhone: true, sort: (group) => group.first_at, render: (group) => html`<${Time} at=${group.first_at} />`},
    {key: "last", label: "Last", width: "98px", sort: (group) => group.last_at, render: (group) => html`<${Time} at=${group.last_at} />`},
    ...(mayDelete
      ? [{
          key: "acts",
          label: html`<span class="hidden">Actions</span>`,
          width: mayMove ? "160px" : "80px",
          hideOnPhone: true,
          className: "acts",
          render: (group) => html`<${RowActions} group=${group} mayMove=${mayMove} onAct=${onAct} />`,
        }]
      : []),
  ];
  const empty = isFiltered && total > 0
    ? html`<${Empty} text="No group of dead letters matches."><button onClick=${onClear}>Show all</button><//>`
    : html`<${NoLetters} />`;
  const rowKeys = mayMove ? {r: [(group) => group.queue !== undefined && onAct("redrive", group), "Redrive the group"]} : {};
  return html`<${Table}
    label="Dead letters in groups"
    columns=${columns}
    rows=${groups}
    rowKey=${(group) => JSON.stringify([group.topic, group.queue, group.reason, group.error])}
    onOpen=${onOpen}
    rowKeys=${rowKeys}
    empty=${empty}
  />`;
}

function sum(numbers) {
  return numbers.reduce((all, one) => all + one, 0);
}

function GroupError({group}) {
  const text = group.error === undefined ? "All other errors" : group.error || "No error was given";
  const line = text.split(/\s*\n/, 1)[0];
  return html`<bdi class=${group.error ? "mono" : "soft"} title=${text}>${line}</bdi>`;
}

const SHORT = {max_deliveries: "too often", rejected: "rejected", expired: "expired"};

function Reason({group}) {
  if (group.queue === undefined) return html`<span class="soft" title="Records that are not dead letters">not one</span>`;
  return html`<span class="soft" title=${REASONS[group.reason] ?? ""}>${SHORT[group.reason] ?? group.reason ?? ""}</span>`;
}

function Queue({group}) {
  if (group.queue === undefined) return html`<bdi class="soft">${group.topic}</bdi>`;
  return html`<a href=${link(["queues", group.queue])}><bdi>${group.queue}</bdi></a>`;
}

function RowActions({group, mayMove, onAct}) {
  if (group.queue === undefined) return null;
  return html`<span class="letter-actions">
    ${mayMove && html`<button class="small" onClick=${() => onAct("redrive", group)}>Redrive…</button>`}
    <button class="small danger" onClick=${() => onAct("drop", group)}>Drop…</button>
  </span>`;
}

function NoLetters() {
  const queues = useFeed((feed) => [...feed.topics].filter(([, topic]) => topic.type === "queue"));
  const without = queues.filter(([, topic]) => !topic.dead_letter).map(([name]) => name);
  const name = without[0] ?? "jobs";
  const command = `curl -X PATCH ${location.origin}/v0/topics/${encodeURIComponent(name)} -H 'content-type: application/json' \\
  -d '${JSON.stringify({max_deliveries: 5, dead_letter: `${name}.dead`}).replaceAll("'", "'\\''")}'`;
  return html`<${Empty}
    text=${html`No dead letters. Jobs come here when a worker rejects them, or when they were delivered <code>max_deliveries</code> times, in queues that have a <code>dead_letter</code> topic.`}
    command=${without.length > 0 ? command : undefined}
  />`;
}
