// Queue.

import {html} from "../vendor/htm-preact.js";
import {Page} from "../parts/page.js";

export default function QueuePage({params}) {
  return html`<${Page} title="Queue"><p class="soft">This page is not there yet.</p><//>`;
}
