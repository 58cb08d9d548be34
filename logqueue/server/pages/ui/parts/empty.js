// What is shown where there is nothing yet: why, and what to do.

import {html} from "../vendor/htm-preact.js";
import {Copy} from "./copy.js";

/** @param {{text: any, command?: string, children?: any}} props command: a line for a shell */
export function Empty({text, command, children}) {
  return html`<div class="empty">
    <p>${text}</p>
    ${command && html`<div class="command"><pre tabindex="0">${command}</pre><${Copy} text=${command} /></div>`}
    ${children}
  </div>`;
}
