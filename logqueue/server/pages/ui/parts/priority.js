// The field for the priority of jobs.

import {html} from "../vendor/htm-preact.js";

export const PRIORITIES = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/** @param {{value: string, onValue: (value: string) => void, autofocus?: boolean}} props value: "0" to "9" */
export function PriorityField({value, onValue, autofocus = false}) {
  return html`<div class="field">
    <label
      ><span>Priority</span>
      <select value=${value} autofocus=${autofocus} onChange=${(event) => onValue(event.target.value)}>
        ${PRIORITIES.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </label>
    <small class="soft">The highest is handed out first</small>
  </div>`;
}
