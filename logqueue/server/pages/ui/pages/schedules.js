// Schedules: what is written at which times, when next, and what is refused.

import {html, useMemo, useState} from "../vendor/htm-preact.js";
import {useApi, useCan} from "../api.js";
import {count} from "../format.js";
import {useKeys} from "../keyboard.js";
import {Empty} from "../parts/empty.js";
import {NameFilter} from "../parts/name_filter.js";
import {Page} from "../parts/page.js";
import {Table} from "../parts/table.js";
import {Time} from "../parts/time.js";
import {link, useQuery} from "../router.js";
import {runNow, setSchedulePaused} from "../timetable/actions.js";
import {ScheduleDialog} from "../timetable/edit_dialog.js";
import {LastFiring, ScheduleView} from "../timetable/view.js";
import {ScheduleState, stateOf, When} from "../timetable/words.js";

const EVERY_MS = 2000;
const SHOWN_MAX = 1000;

export default function SchedulesPage() {
  const [query, setQuery] = useQuery();
  const search = new URLSearchParams({page_size: SHOWN_MAX, ...(query.queue && {topic: query.queue})});
  const {data, error, reload} = useApi(`/v0/schedules?${search}`, {every: EVERY_MS});
  const mayChange = useCan("admin");
  const [edited, setEdited] = useState(undefined);
  const add = () => setEdited(null);
  useKeys(mayChange ? {n: [add, "New schedule"]} : {});
  const all = data?.schedules ?? [];
  const rows = useMemo(() => all.filter(({schedule}) => schedule.toLowerCase().includes((query.q ?? "").toLowerCase())), [data, query.q]);
  const edit = (schedule) => {
    setQuery({schedule: null});
    setEdited(schedule);
  };
  return html`<${Page} title="Schedules" actions=${mayChange && html`<button class="primary" onClick=${add}>New schedule…</button>`}>
    ${error && html`<p class="refusal" role="alert">${error.message}</p>`}
    ${data === null
      ? !error && html`<p class="loading">Asking the server for the schedules…</p>`
      : all.length === 0 && !query.queue
        ? html`<${NoSchedule} />`
        : html`<${Toolbar} query=${query} setQuery=${setQuery} />
            <${Schedules} rows=${rows} query=${query} setQuery=${setQuery} reload=${mayChange ? reload : null} />
            ${data.next_cursor && html`<p class="soft">The first ${count(all.length)} are shown; <code>logqueue schedules</code> lists all.</p>`}`}
    ${query.schedule && html`<${ScheduleView} name=${query.schedule} onClose=${() => setQuery({schedule: null})} onEdit=${edit} />`}
    ${edited !== undefined && html`<${ScheduleDialog} schedule=${edited} onClose=${() => setEdited(undefined)} onSaved=${reload} />`}
  <//>`;
}

function Toolbar({query, setQuery}) {
  return html`<div class="toolbar">
    <${NameFilter} query=${query} setQuery=${setQuery} />
    ${query.queue &&
    html`<button class="chip" onClick=${() => setQuery({queue: null})} title="Show the schedules of all queues">
      Queue <b><bdi>${query.queue}</bdi></b> <span aria-hidden="true">✕</span><span class="hidden">: show all queues</span>
    </button>`}
  </div>`;
}

function Schedules({rows, query, setQuery, reload}) {
  const columns = useMemo(() => columnsOf(reload), [reload !== null]);
  const sort = query.sort ? {key: query.sort, down: query.down === "true"} : null;
  const pause = (row) => setSchedulePaused(row.schedule, !row.paused, reload);
  return html`<${Table}
    label="Schedules"
    columns=${columns}
    rows=${rows}
    rowKey=${(row) => row.schedule}
    onOpen=${(row) => setQuery({schedule: row.schedule}, {push: true})}
    rowKeys=${reload ? {p: [pause, "Pause or resume"]} : {}}
    sort=${sort}
    onSort=${({key, down}) => setQuery({sort: key, down})}
    empty=${html`<${Empty} text="No schedule matches this filter.">
      <button onClick=${() => setQuery({q: null, queue: null})}>Show all</button>
    <//>`}
  />`;
}

function columnsOf(reload) {
  return [
    {
      key: "schedule",
      label: "Schedule",
      sort: (row) => row.schedule,
      render: (row) => html`<span class="topic-name"
        ><a href=${link(["schedules"], {schedule: row.schedule})} title=${row.schedule}><bdi>${row.schedule}</bdi></a
      ></span>`,
    },
    {key: "state", label: "State", width: "88px", sort: stateOf, render: (row) => html`<${ScheduleState} schedule=${row} />`},
    {
      key: "topic",
      label: "Queue",
      width: "150px",
      hideOnPhone: true,
      sort: (row) => row.topic,
      render: (row) => html`<a href=${link(["queues", row.topic])}><bdi>${row.topic}</bdi></a>`,
    },
    {key: "when", label: "When", width: "270px", hideOnPhone: true, render: (row) => html`<${When} schedule=${row} />`},
    {key: "next", label: "Next", width: "132px", align: "end", sort: (row) => row.next_at, render: (row) => html`<${Time} at=${row.next_at} />`},
    {
      key: "last",
      label: "Last firing",
      width: "170px",
      hideOnPhone: true,
      sort: (row) => row.last_fired_at,
      render: (row) => html`<${LastFiring} schedule=${row} />`,
    },
    {
      key: "fired",
      label: "Fired",
      width: "74px",
      align: "end",
      hideOnPhone: true,
      sort: (row) => row.fired,
      render: (row) => html`<span class=${row.fired ? "" : "zero"}>${count(row.fired)}</span>`,
    },
    {
      key: "do",
      label: html`<span class="hidden">Actions</span>`,
      width: reload ? "170px" : "12px",
      align: "end",
      hideOnPhone: true,
      render: (row) => reload && html`<${RowActions} row=${row} reload=${reload} />`,
    },
  ];
}

function RowActions({row, reload}) {
  const of = html`<span class="hidden"> ${row.schedule}</span>`;
  return html`<span class="row-actions">
    <button class="small" onClick=${() => runNow(row, reload)}>Run now${of}</button>
    <button class="small" onClick=${() => setSchedulePaused(row.schedule, !row.paused, reload)}>${row.paused ? "Resume" : "Pause"}${of}</button>
  </span>`;
}

function NoSchedule() {
  const command = [
    `curl -X PUT ${location.origin}/v0/schedules/nightly \\`,
    `  -H 'content-type: application/json' \\`,
    `  -d '{"topic":"reports","cron":"0 3 * * *","timezone":"UTC","record":{"data":{"task":"report"}}}'`,
  ].join("\n");
  return html`<${Empty} text="There is no schedule yet. One writes a job at times of its own, such as every night at three:" command=${command} />`;
}
