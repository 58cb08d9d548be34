// What a queue did in the last ten minutes or the last day.

import {html, useMemo} from "../vendor/htm-preact.js";
import {apiPath, useApi} from "../api.js";
import {Chart} from "../parts/chart.js";
import {useQuery} from "../router.js";

const WINDOWS = {
  "10m": {label: "10 min", every: 3000},
  "24h": {label: "24 h", every: 60_000},
};

/** @param {{queue: string}} props */
export function QueueCharts({queue}) {
  const [query, setQuery] = useQuery();
  const window = query.window === "24h" ? "24h" : "10m";
  const path = `${apiPath("topics", queue, "history")}?window=${window}`;
  const {data, error} = useApi(path, {every: WINDOWS[window].every});
  return html`<section class="card" aria-label="History">
    <div class="card-head">
      <h2>History</h2>
      <div class="segmented" role="group" aria-label="How far back">
        ${Object.entries(WINDOWS).map(
          ([name, {label}]) => html`<button
            key=${name}
            aria-pressed=${window === name}
            onClick=${() => setQuery({window: name === "10m" ? null : name})}
          >
            ${label}
          </button>`,
        )}
      </div>
    </div>
    <div class="card-body">
      ${data
        ? html`<${Charts} history=${data} />`
        : html`<p class=${error ? "problem" : "soft"}>
            ${error ? `No history: ${error.message}` : "Loading the history…"}
          </p>`}
    </div>
  </section>`;
}

function Charts({history}) {
  const {times, flow, waiting, oldest} = useMemo(() => seriesOf(history), [history]);
  return html`<div class="charts">
    <${Chart} label="Jobs per second" series=${flow} times=${times} unit="rate" />
    <${Chart} label="Jobs in the queue" series=${waiting} times=${times} />
    <${Chart} label="Oldest ready job" series=${oldest} times=${times} unit="ms" />
  </div>`;
}

/** Without the last step, which has only begun: it would be a dip at the end of every line. */
function seriesOf({series: all, step_ms: step, from}) {
  const whole = ([name, values]) => [name, values?.slice(0, -1)];
  const series = Object.fromEntries(Object.entries(all).map(whole));
  const length = series.ready?.length ?? series.appended.length;
  const times = Array.from({length}, (_, i) => from + i * step);
  const perSecond = (values) => values.map((value) => (value === null ? null : (value * 1000) / step));
  const failed = series.nacked.map((value, i) => (value === null ? null : value + (series.expired[i] ?? 0)));
  return {
    times,
    flow: [
      {label: "In", values: perSecond(series.appended), color: "--chart-1"},
      {label: "Acked", values: perSecond(series.acked), color: "--chart-2"},
      {label: "Failed", values: perSecond(failed), color: "--chart-4"},
    ],
    waiting: [
      {label: "Ready", values: series.ready, color: "--chart-1"},
      {label: "In flight", values: series.in_flight, color: "--chart-5"},
    ],
    oldest: [{label: "Oldest", values: series.oldest_ready_ms, color: "--chart-3"}],
  };
}
