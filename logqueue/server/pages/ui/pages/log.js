// Log.

import {html} from "../vendor/htm-preact.js";
import {Page} from "../parts/page.js";

export default function LogPage({params}) {
  return html`<${Page} title="Log"><p class="soft">This page is not there yet.</p><//>`;
}
