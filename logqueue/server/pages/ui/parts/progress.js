// How far something has come, in words and as a bar.

import {html} from "../vendor/htm-preact.js";
import {count} from "../format.js";

/**
 * @param {{label: string, done: number, total: number|null, onStop?: () => void}} props
 *   total: null while it is not known
 */
export function Progress({label, done, total, onStop}) {
  const known = total !== null && total !== undefined;
  return html`<div class="progress">
    <div class="progress-text">
      <span>${label}</span>
      <span class="number">${known ? `${count(done)} of ${count(total)}` : count(done)}</span>
      ${onStop && html`<button class="small" onClick=${onStop}>Stop</button>`}
    </div>
    <progress aria-label=${label} value=${known ? done : null} max=${known ? Math.max(total, 1) : null} />
  </div>`;
}

/** How far a worker says that a job is, and its note, in a line. @param {{job: object}} props */
export function HowFar({job: {progress, note}}) {
  if (progress === undefined && !note) return null;
  const percent = progress === undefined ? "" : `${Math.floor(progress * 100)} %`;
  return html`<span title=${note}><span class="number">${percent}</span> <bdi class="soft">${note}</bdi></span>`;
}
