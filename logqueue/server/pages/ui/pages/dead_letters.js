// Dead letters.

import {html} from "../vendor/htm-preact.js";
import {Page} from "../parts/page.js";

export default function DeadLettersPage({params}) {
  return html`<${Page} title="Dead letters"><p class="soft">This page is not there yet.</p><//>`;
}
