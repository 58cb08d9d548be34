// A small line of recent values.

import {html} from "../vendor/htm-preact.js";

const WIDTH = 96;
const HEIGHT = 20;

/**
 * @param {{values: number[], second?: number[], label: string}} props
 *   second: another line on the same scale; label: what it says, for those who cannot see it
 */
export function Sparkline({values, second = null, label}) {
  const most = Math.max(1e-9, ...values, ...(second ?? []));
  const isFlat = most < 1e-6;
  return html`<svg class="sparkline" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} width=${WIDTH} height=${HEIGHT}
    role="img" aria-label=${label} preserveAspectRatio="none">
    <line class="floor" x1="0" x2=${WIDTH} y1=${HEIGHT - 1} y2=${HEIGHT - 1} />
    ${!isFlat && html`<path class="area" d=${`${line(values, most)}V${HEIGHT}H0Z`} />`}
    ${!isFlat && html`<path class="line" d=${line(values, most)} />`}
    ${!isFlat && second && html`<path class="line second" d=${line(second, most)} />`}
  </svg>`;
}

function line(values, most) {
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, i) => {
    const y = HEIGHT - 1 - (value / most) * (HEIGHT - 3);
    return `${(i * step).toFixed(1)},${y.toFixed(1)}`;
  });
  return points.length ? `M${points.join("L")}` : "";
}
