// Queues.

import {html} from "../vendor/htm-preact.js";
import {Page} from "../parts/page.js";

export default function OverviewPage({params}) {
  return html`<${Page} title="Queues"><p class="soft">This page is not there yet.</p><//>`;
}
