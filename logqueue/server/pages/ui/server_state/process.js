// Memory, limits, connections, slow requests and settings of the server.

import {html} from "../vendor/htm-preact.js";
import {count, counted, size} from "../format.js";
import {Empty} from "../parts/empty.js";
import {Table} from "../parts/table.js";
import {Time} from "../parts/time.js";
import {Card, Meter, Words} from "./parts.js";

/** @param {{memory: object}} props */
export function Memory({memory}) {
  const parts = memory.parts.filter((part) => part.bytes > 0);
  const largest = Math.max(1, ...parts.map((part) => part.bytes));
  const aside = memory.resident_bytes !== null && html`<span class="soft number">${size(memory.resident_bytes)} resident</span>`;
  return html`<${Card} title="Memory" aside=${aside}>
    <ul class="card-body bars">
      ${parts.map(
        (part) => html`<li key=${part.part}>
          <span>${part.text}</span>
          <span class="number">${size(part.bytes)}</span>
          <${Meter} share=${part.bytes / largest} />
        </li>`,
      )}
    </ul>
  <//>`;
}

const BYTES = /bytes/;

/** @param {{limits: object[]}} props */
export function Limits({limits}) {
  const shown = (limit, value) => (BYTES.test(limit.name) ? size(value) : count(value));
  return html`<${Card} title="Limits">
    <ul class="card-body bars">
      ${limits.map((limit) => {
        const share = limit.max ? limit.used / limit.max : 0;
        const kind = share >= 1 ? "bad" : share >= 0.8 ? "warn" : "";
        return html`<li key=${limit.name} title=${`LOGQUEUE_${limit.name.toUpperCase()}`}>
          <span>${limit.text}</span>
          <span class="number">
            ${kind && html`<span class=${`mark ${kind}`}>${Math.round(100 * share)} %</span> `}${shown(limit, limit.used)}
            <span class="soft"> of ${limit.max === null || limit.max === undefined ? "unlimited" : shown(limit, limit.max)}</span>
          </span>
          <${Meter} share=${share} kind=${kind} />
        </li>`;
      })}
    </ul>
  <//>`;
}

/** @param {{connections: object}} props */
export function Connections({connections}) {
  return html`<${Card} title="Connections">
    <div class="card-body">
      <${Words}
        rows=${[
          ["Open", `${count(connections.open)}, ${count(connections.streams)} of them with a stream`],
          ["Claims", `${counted(connections.claims_waiting, "claim")} waiting for jobs`],
          ["Replies", `${counted(connections.replies_waiting, "reply", "replies")} waiting for the log`],
          [
            "Not reading",
            `${counted(connections.not_reading, "connection")} now; ${count(connections.dropped)} closed for it since the start`,
          ],
        ]}
      />
    </div>
  <//>`;
}

const SLOW_COLUMNS = [
  {key: "took", label: "Took", align: "end", width: "6.5rem", sort: (row) => row.took_ms, render: (row) => `${count(Math.round(row.took_ms))} ms`},
  {
    key: "route",
    label: "Request",
    sort: (row) => row.route,
    render: (row) => html`<code>${row.method} ${row.route}</code>`,
  },
  {key: "name", label: "Name", width: "14rem", sort: (row) => row.name, render: (row) => html`<bdi title=${row.name}>${row.name}</bdi>`, hideOnPhone: true},
  {
    key: "status",
    label: "Status",
    align: "end",
    width: "5rem",
    sort: (row) => row.status,
    render: (row) => html`<span class=${row.status >= 500 ? "bad-text" : row.status >= 400 ? "warn-text" : ""}>${row.status}</span>`,
    hideOnPhone: true,
  },
  {key: "at", label: "When", width: "8rem", sort: (row) => row.at, render: (row) => html`<${Time} at=${row.at} />`},
];

/** @param {{requests: object[], from: number}} props from: faster ones are never here, ms */
export function SlowRequests({requests, from}) {
  const none = html`<${Empty} text=${`No request took longer than ${count(from)} ms in the last hour.`} />`;
  return html`<section class="stack" aria-label="Slow requests">
    <div class="section-head">
      <h2>Slow requests</h2>
      <span class="soft">The slowest of the last hour, from ${count(from)} ms on; waiting that a client asked for does not count</span>
    </div>
    <${Table} columns=${SLOW_COLUMNS} rows=${requests} rowKey=${slowKey} empty=${none} label="Slow requests" keys=${false} />
  </section>`;
}

function slowKey(row) {
  return `${row.at} ${row.route} ${row.name} ${row.took_ms}`;
}

/** @param {{settings: object[]}} props */
export function Settings({settings}) {
  return html`<${Card} title="Settings" aside=${html`<span class="soft">other than the default</span>`}>
    <div class="card-body">
      ${settings.length === 0
        ? html`<p class="soft">Every setting is at its default.</p>`
        : html`<dl class="settings">
            ${settings.map(
              (one) => html`<div key=${one.name}>
                <dt><code>${one.name}</code></dt>
                <dd><bdi>${one.value}</bdi>${one.default !== null && one.default !== undefined && html` <span class="soft">instead of ${one.default}</span>`}</dd>
              </div>`,
            )}
          </dl>`}
    </div>
  <//>`;
}
