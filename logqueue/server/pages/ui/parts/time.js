// Times: relative, with the absolute one on hover, in the viewer's zone.

import {html} from "../vendor/htm-preact.js";
import {useNow} from "../clock.js";
import {absolute, ago} from "../format.js";

/** @param {{at: number|null}} props ms since 1970 */
export function Time({at}) {
  const now = useNow();
  if (at === null || at === undefined) return html`<span class="soft">–</span>`;
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return html`<span>${String(at)}</span>`;
  return html`<time datetime=${date.toISOString()} title=${absolute(at)}>${ago(at, now)}</time>`;
}
