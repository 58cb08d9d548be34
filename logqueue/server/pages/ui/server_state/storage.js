// Disk, logs, syncs, checkpoints, archive and replica of the server.

import {html} from "../vendor/htm-preact.js";
import {count, counted, duration, size} from "../format.js";
import {Time} from "../parts/time.js";
import {Card, Segments, StackedBar, Words} from "./parts.js";

const LOGS = {jobs: "Jobs log", leases: "Leases log"};

/** @param {{state: object}} props a reply of GET /v0/server */
export function Disk({state}) {
  const {disk, logs} = state;
  return html`<${Card}
    title="Disk and logs"
    aside=${disk && html`<span class="soft number">${size(disk.free_bytes)} free of ${size(disk.total_bytes)}</span>`}
  >
    <div class="card-body stack">
      ${disk && html`<${Space} disk=${disk} />`}
      ${logs.map((log) => html`<${Log} key=${log.log} log=${log} />`)}
    </div>
  <//>`;
}

function Space({disk}) {
  const own = disk.logs_bytes + disk.heads_bytes + disk.reserve_bytes;
  const others = Math.max(0, disk.total_bytes - disk.free_bytes - own);
  const parts = [
    {name: "Logs", value: disk.logs_bytes, color: "1"},
    {name: "Heads files", value: disk.heads_bytes, color: "2"},
    {name: "Reserve", value: disk.reserve_bytes, color: "3"},
    {name: "Other files", value: others, color: "6"},
    {name: "Free", value: disk.free_bytes, color: "free"},
  ].map((part) => ({...part, text: size(part.value)}));
  return html`<div>
    <${StackedBar} label="Space on the disk of the data directory" parts=${parts} />
    <p class="legend">
      ${parts.map((part) => html`<span key=${part.name}><i class=${`swatch fill--${part.color}`} />${part.name} <b>${part.text}</b></span>`)}
    </p>
  </div>`;
}

function Log({log}) {
  const name = LOGS[log.log] ?? log.log;
  const share = Math.min(100, Math.round((100 * log.active_bytes) / log.segment_max_bytes));
  const label = `${name}: ${counted(log.segments, "segment")}, the newest is ${share} % full`;
  return html`<div class="log-use">
    <div>
      <h3>${name}</h3>
      <p class="soft number">
        ${size(log.bytes)} in ${counted(log.segments, "segment")}, ${count(log.oldest)} to ${count(log.newest)}${log.waiting_frames > 0 &&
        `, ${counted(log.waiting_frames, "frame")} not written yet`}
      </p>
      ${log.failure && html`<p class="problem">${log.failure}</p>`}
    </div>
    <${Segments} sizes=${log.recent} max=${log.segment_max_bytes} newest=${log.newest} label=${label} />
  </div>`;
}

/** What a write waits for, and what it survives. @param {{state: object}} props */
export function Durability({state}) {
  const {sync} = state;
  return html`<${Card} title="Durability">
    <table class="table plain" aria-label="What each durability class promises here">
      <thead>
        <tr>
          <th scope="col">Class</th>
          <th scope="col" class="end">Topics</th>
          <th scope="col">A reply waits for</th>
          <th scope="col">A written record survives</th>
        </tr>
      </thead>
      <tbody>
        ${state.durability.map(
          (one) => html`<tr key=${one.durability} class=${one.topics === 0 ? "unused" : ""}>
            <td><code>${one.durability}</code></td>
            <td class="end">${count(one.topics)}</td>
            <td>${one.reply_waits_for}</td>
            <td>${one.survives}</td>
          </tr>`,
        )}
      </tbody>
    </table>
    <div class="card-body">
      <${Words}
        rows=${[
          ["Syncs", sync.p50_ms === null ? "None yet" : syncText(sync)],
          ["Checkpoint", state.checkpoints && html`<${Checkpoint} points=${state.checkpoints} />`],
        ]}
      />
    </div>
  <//>`;
}

function ms(value) {
  return value < 10 ? `${value.toFixed(2)} ms` : duration(value);
}

function syncText(sync) {
  const few = `median ${ms(sync.p50_ms)}, 99 % within ${ms(sync.p99_ms)}, longest ${ms(sync.max_ms)}`;
  return `${few}, of the last ${count(sync.recent)} of ${count(sync.count)}`;
}

function Checkpoint({points}) {
  const {last_at: at, last_segment: segment} = points;
  return html`${points.in_progress && "In progress. "}
    ${at === null ? "None since the start" : html`<${Time} at=${at} />, at segment ${count(segment)}`};
    ${" "}the next in ${size(points.next_in_bytes)} of log.${" "}
    <span class="soft">
      ${size(points.live_bytes)} are live; above ${size(points.compacts_above_bytes)} the log is compacted.
    </span>`;
}

/** @param {{state: object}} props */
export function Copies({state}) {
  const {archive, replica} = state;
  if (archive === null && replica === null) return null;
  return html`<${Card} title="Replica and archive">
    <div class="card-body stack">
      ${replica && html`<${Replica} replica=${replica} />`}
      ${archive &&
      html`<${Words}
        rows=${[
          [
            "Archive",
            html`${archive.failing && html`<span class="mark bad">Failing</span> `}${counted(archive.segments, "segment")},
              ${" "}${size(archive.bytes)}${isKnown(archive.max_bytes) && ` of at most ${size(archive.max_bytes)}`}`,
          ],
        ]}
      />`}
    </div>
  <//>`;
}

const STATES = {current: "ok", behind: "warn", stalled: "bad", fenced: "bad", ended: "warn"};

function Replica({replica}) {
  return html`<${Words}
    rows=${[
      ["This server", `${replica.role}${replica.mode ? `, ${replica.mode} mode` : ""}`],
      [
        "State",
        replica.state &&
          html`<span class=${`mark ${STATES[replica.state] ?? ""}`}>${replica.state}</span> ${duration(replica.lag_ms ?? 0)} behind${replica.lag_frames
            ? `, ${counted(replica.lag_frames, "frame")}`
            : ""}`,
      ],
      ["Replica", replica.url && html`<code>${replica.url}</code>`],
      ["Epoch", isKnown(replica.epoch) ? count(replica.epoch) : null],
      ["Writer", replica.writer?.address ? html`<code>${replica.writer.address}</code>` : null],
      ["Last chunk", isKnown(replica.last_chunk) ? chunkText(replica) : null],
      ["Last error", replica.last_error && html`<span class="problem">${replica.last_error}</span> <${Time} at=${replica.last_error_at} />`],
    ]}
  />`;
}

function chunkText({last_chunk: last, chunks_behind: behind}) {
  return `${count(last)}${isKnown(behind) ? `; a restore reads ${counted(behind, "chunk")}` : ""}`;
}

function isKnown(value) {
  return value !== null && value !== undefined;
}
