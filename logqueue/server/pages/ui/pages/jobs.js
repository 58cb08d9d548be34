// Jobs.

import {html} from "../vendor/htm-preact.js";
import {Page} from "../parts/page.js";

export default function JobsPage({params}) {
  return html`<${Page} title="Jobs"><p class="soft">This page is not there yet.</p><//>`;
}
