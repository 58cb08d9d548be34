// How long a lease lasts, counted down.

import {html} from "../vendor/htm-preact.js";
import {useNow} from "../clock.js";
import {absolute, duration} from "../format.js";

const SHORT_MS = 5000;

/** @param {{deadline: number|null|undefined}} props ms since 1970 */
export function LeaseLeft({deadline}) {
  const now = useNow();
  if (deadline === null || deadline === undefined) return html`<span class="zero">–</span>`;
  const left = Math.ceil((deadline - now) / 1000) * 1000;
  const kind = left <= SHORT_MS ? "warn-text" : "";
  return html`<span class=${kind} title=${`until ${absolute(deadline)}`}>${left > 0 ? duration(left) : "over"}</span>`;
}
