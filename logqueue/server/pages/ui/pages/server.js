// Server.

import {html} from "../vendor/htm-preact.js";
import {Page} from "../parts/page.js";

export default function ServerPage({params}) {
  return html`<${Page} title="Server"><p class="soft">This page is not there yet.</p><//>`;
}
