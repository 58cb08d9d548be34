// Server: is it all right, what does it use, and what was slow.

import {html} from "../vendor/htm-preact.js";
import {useApi, useScopes} from "../api.js";
import {absolute, count, duration, size} from "../format.js";
import {Empty} from "../parts/empty.js";
import {Page} from "../parts/page.js";
import {Age} from "../parts/time.js";
import {Backup} from "../server_state/backup.js";
import {Health} from "../server_state/health.js";
import {LogLevel} from "../server_state/log_level.js";
import {Connections, Limits, Memory, Settings, SlowRequests} from "../server_state/process.js";
import {Copies, Disk, Durability} from "../server_state/storage.js";

const EVERY_MS = 2000;

export default function ServerPage() {
  // Once it is known what the key may see: a call that is refused would be for nothing.
  const key = useScopes();
  const isLimited = (key?.prefixes ?? []).length > 0;
  const path = key === undefined || isLimited ? null : "/v0/server";
  const {data, error, reload} = useApi(path, {every: EVERY_MS});
  return html`<${Page} title="Server">
    ${data === null ? html`<${NotYet} error=${error} isLimited=${isLimited} reload=${reload} />` : html`<${Server} state=${data} error=${error} reload=${reload} />`}
  <//>`;
}

function NotYet({error, isLimited, reload}) {
  if (error === null && !isLimited) return html`<p class="loading">Asking the server how it is…</p>`;
  if (isLimited || error.status === 403) {
    return html`<${Empty} text="This key may not see the server as a whole: it lacks the scope read, or is limited to some names." />`;
  }
  return html`<${Empty} text=${`The state of the server is not loaded: ${error.message}`}>
    <button onClick=${reload}>Try again</button>
  <//>`;
}

function Server({state, error, reload}) {
  const hasCopies = state.replica !== null || state.archive !== null;
  // Where there is room for it.
  const settings = html`<${Settings} settings=${state.settings} />`;
  return html`<div class="server-page stack">
    <${Health} health=${state.health} error=${error} />
    <${Strip} state=${state} />
    <div class="columns">
      <div class="stack">
        <${Disk} state=${state} />
        <${Copies} state=${state} />
        <${Limits} limits=${state.limits} />
        ${!hasCopies && settings}
      </div>
      <div class="stack">
        <${Memory} memory=${state.memory} />
        <${Connections} connections=${state.connections} />
        <${Backup} state=${state} />
        <${LogLevel} level=${state.log_level} onChanged=${reload} />
        ${hasCopies && settings}
      </div>
    </div>
    <${Durability} state=${state} />
    <${SlowRequests} requests=${state.slow_requests} from=${state.slow_from_ms} />
  </div>`;
}

function Strip({state}) {
  const {sync, disk, memory} = state;
  const cells = [
    ["Up", html`<span title=${`since ${absolute(state.started_at)}`}><${Age} since=${state.started_at} /></span>`],
    ["Role", state.role === "none" || state.phase !== "ready" ? state.phase : state.role],
    ["Topics", count(state.topics)],
    ["Records", html`<span title=${size(state.record_bytes)}>${count(state.records)}</span>`],
    ["Memory", size(memory.resident_bytes)],
    ["Disk free", size(disk?.free_bytes)],
    ["Sync, 99 %", sync.p99_ms === null ? "–" : sync.p99_ms < 10 ? `${sync.p99_ms.toFixed(1)} ms` : duration(sync.p99_ms)],
    ["Connections", count(state.connections.open)],
    ["Version", html`<span title=${`Python ${state.python}`}>${state.version}</span>`],
  ];
  return html`<dl class="totals" aria-label="The server in numbers">
    ${cells.map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}
