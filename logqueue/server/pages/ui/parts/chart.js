// Charts over time. The library is loaded when the first one is shown.

import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {clock, count, duration, rate, size} from "../format.js";
import {colour, useIsDark} from "../theme.js";

const COLOURS = ["--chart-1", "--chart-2", "--chart-3", "--chart-4", "--chart-5", "--chart-6"];
const UNITS = {
  count,
  rate: (value) => (value === null || value === undefined ? "–" : `${rate(value)}/s`),
  bytes: size,
  ms: duration,
};
/** Shorter forms for the axis. */
const TICKS = {
  ...UNITS,
  rate: (value) => (Number.isInteger(value) ? count(value) : value.toFixed(1)),
  ms: (value) => (value === 0 ? "0" : tickDuration(value)),
};
const MS_STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400, 604_800].flatMap(
  (seconds, i) => (i < 4 ? [seconds, seconds * 10, seconds * 100, seconds * 1000] : [seconds * 1000]),
).sort((a, b) => a - b);
let loading = null;

function tickDuration(ms) {
  if (ms < 90_000) return duration(ms);
  const minutes = ms / 60_000;
  const [value, unit] = minutes < 90 ? [minutes, "min"] : minutes < 2880 ? [minutes / 60, "h"] : [minutes / 1440, "d"];
  return `${Number.isInteger(value) ? value : value.toFixed(1)} ${unit}`;
}

function library() {
  loading ??= new Promise((resolve, reject) => {
    const sheet = document.createElement("link");
    Object.assign(sheet, {rel: "stylesheet", href: "/ui/vendor/uplot.css"});
    const script = document.createElement("script");
    Object.assign(script, {src: "/ui/vendor/uplot.js", onerror: reject});
    script.onload = () => resolve(globalThis.uPlot);
    document.head.append(sheet, script);
  });
  return loading;
}

/**
 * @param {{series: {label: string, values: (number|null)[], color?: string}[], times: number[],
 *   height?: number, unit?: "count"|"rate"|"bytes"|"ms", label?: string}} props
 *   color: a variable of the style sheet, such as "--bad"; times: ms since 1970
 */
export function Chart({series, times, height = 160, unit = "count", label = "Chart"}) {
  const box = useRef(null);
  const chart = useRef(null);
  const [at, setAt] = useState(null);
  const [failed, setFailed] = useState(false);
  const isDark = useIsDark();
  const labels = series.map((one) => one.label).join("\n");
  const latest = useRef(null);
  latest.current = [times.map((ms) => ms / 1000), ...series.map((one) => one.values)];
  useEffect(() => {
    let isWanted = true;
    let observer = null;
    library().then(
      (uPlot) => {
        if (!isWanted) return;
        const made = optionsOf({series, height, unit, onCursor: setAt, width: box.current.clientWidth});
        chart.current = new uPlot(made, latest.current, box.current);
        observer = new ResizeObserver(() => {
          const width = box.current?.clientWidth ?? 0;
          if (width > 0 && chart.current.width !== width) chart.current.setSize({width, height});
        });
        observer.observe(box.current);
      },
      () => setFailed(true),
    );
    return () => {
      isWanted = false;
      observer?.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [labels, height, unit, isDark]);
  useEffect(() => {
    chart.current?.setData(latest.current);
  }, [series, times]);
  const show = UNITS[unit] ?? count;
  const index = at ?? times.length - 1;
  return html`<figure class="chart">
    <figcaption>
      <span class="chart-label">${label}</span>
      <span class="number soft legend-time">${times.length ? clock(times[index]) : ""}</span>
      <span class="legend">
        ${series.map(
          (one, i) => html`<span key=${one.label} class=${`legend-item series-${i + 1}`}>
            <i class=${`swatch ${swatch(one, i)}`} />${one.label}${" "}
            <b class="number">${show(one.values[index])}</b>
          </span>`,
        )}
      </span>
    </figcaption>
    <div ref=${box} class="plot" style=${{height: `${height}px`}} aria-hidden="true">
      ${failed && html`<p class="problem">The chart could not be loaded; the numbers above are right.</p>`}
    </div>
    <p class="hidden">
      ${series.map((one) => `${one.label}: now ${show(one.values.at(-1))}, at most ${show(most(one.values))}. `)}
    </p>
  </figure>`;
}

function swatch(one, index) {
  return `swatch${one.color ?? COLOURS[index % COLOURS.length]}`;
}

function most(values) {
  return values.reduce((best, value) => (value > best ? value : best), 0);
}

function optionsOf({series, height, width, unit, onCursor}) {
  const soft = colour("--soft");
  const grid = {stroke: colour("--line"), width: 1};
  const font = "11px system-ui, sans-serif";
  const axis = {stroke: soft, grid, ticks: {show: false}, font};
  const show = TICKS[unit] ?? count;
  return {
    width,
    height,
    legend: {show: false},
    cursor: {y: false, drag: {x: false, y: false}, points: {size: 6}},
    padding: [8, 0, 0, 0],
    scales: {y: {range: (_, low, high) => [0, Math.max(high * 1.1, unit === "ms" ? 1000 : 1)]}},
    axes: [
      {...axis, size: 24, space: 70, values: (_, ticks) => ticks.map(tickText)},
      {...axis, size: 56, space: 36, incrs: unit === "ms" ? MS_STEPS : undefined, values: (_, ticks) => ticks.map((tick) => show(tick))},
    ],
    series: [{}, ...series.map((one, i) => line(one, i))],
    hooks: {setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)]},
  };
}

function tickText(seconds) {
  const text = clock(seconds * 1000);
  return seconds % 60 === 0 ? text.slice(0, 5) : text;
}

function line(one, index) {
  const stroke = colour(one.color ?? COLOURS[index % COLOURS.length]);
  const fill = index === 0 ? `color-mix(in srgb, ${stroke} 12%, transparent)` : undefined;
  return {label: one.label, stroke, fill, width: 1.5, points: {show: false}, spanGaps: false};
}
