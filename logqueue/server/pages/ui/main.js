// Starts the dashboard.

import {html, render} from "./vendor/htm-preact.js";
import {startFeed} from "./feed.js";
import {startRouter} from "./router.js";
import {Shell} from "./shell.js";

startRouter();
startFeed();
render(html`<${Shell} />`, document.getElementById("app"));
