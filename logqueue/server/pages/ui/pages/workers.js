// Workers.

import {html} from "../vendor/htm-preact.js";
import {Page} from "../parts/page.js";

export default function WorkersPage({params}) {
  return html`<${Page} title="Workers"><p class="soft">This page is not there yet.</p><//>`;
}
