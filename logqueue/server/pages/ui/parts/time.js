// Times: relative, with the absolute one on hover, in the viewer's zone.

import {html} from "../vendor/htm-preact.js";
import {useNow} from "../clock.js";
import {absolute, ago, duration} from "../format.js";

/** @param {{at: number|null}} props ms since 1970 */
export function Time({at}) {
  const now = useNow();
  if (at === null || at === undefined) return html`<span class="soft">–</span>`;
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return html`<span>${String(at)}</span>`;
  return html`<time datetime=${date.toISOString()} title=${absolute(at)}>${ago(at, now)}</time>`;
}

/** How long something has lasted: "14 min". @param {{since: number|null}} props ms since 1970 */
export function Age({since}) {
  const now = useNow();
  if (since === null || since === undefined) return html`<span class="zero">–</span>`;
  const passed = Math.max(0, Math.floor((now - since) / 1000) * 1000);
  return html`<span title=${`since ${absolute(since)}`}>${duration(passed)}</span>`;
}
