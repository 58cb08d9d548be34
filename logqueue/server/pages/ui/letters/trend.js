// How many letters came in each of the last 24 hours, as bars.

import {html} from "../vendor/htm-preact.js";
import {count, counted} from "../format.js";

const BAR = 4;
const HEIGHT = 18;

/** @param {{perHour: number[]}} props the oldest hour first */
export function Trend({perHour}) {
  const most = Math.max(...perHour, 0);
  const today = perHour.reduce((sum, one) => sum + one, 0);
  const label =
    today === 0
      ? "None in the last 24 hours"
      : `${counted(today, "letter")} in the last 24 hours, ${count(most)} in the worst, ${count(perHour.at(-1))} in the last`;
  const width = BAR * perHour.length;
  return html`<svg class="trend" viewBox=${`0 0 ${width} ${HEIGHT}`} width=${width} height=${HEIGHT} role="img" aria-label=${label}>
    <title>${label}</title>
    <line x1="0" x2=${width} y1=${HEIGHT - 0.5} y2=${HEIGHT - 0.5} />
    ${perHour.map((value, hour) => {
      const height = value === 0 ? 0 : Math.max(2, (value / most) * (HEIGHT - 2));
      return value > 0 && html`<rect key=${hour} x=${hour * BAR} y=${HEIGHT - height} width=${BAR - 1} height=${height} />`;
    })}
  </svg>`;
}
