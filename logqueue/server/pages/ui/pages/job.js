// Job.

import {html} from "../vendor/htm-preact.js";
import {Page} from "../parts/page.js";

export default function JobPage({params}) {
  return html`<${Page} title="Job"><p class="soft">This page is not there yet.</p><//>`;
}
