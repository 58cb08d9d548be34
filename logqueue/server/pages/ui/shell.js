// The frame around every page: navigation, health, keys, dialogs, notices.

import {html, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState} from "./vendor/htm-preact.js";
import {askAgain, forgetKey, hasKey, useDeclined, useScopes} from "./api.js";
import {useNow} from "./clock.js";
import {useFeed} from "./feed.js";
import {duration} from "./format.js";
import {useKeyList, useKeys} from "./keyboard.js";
import {Dialog, DialogHost} from "./parts/dialog.js";
import {KeyDialog} from "./parts/key_dialog.js";
import {Notices, notify} from "./parts/notices.js";
import {Page} from "./parts/page.js";
import {link, navigate, useRoute} from "./router.js";
import {useTheme} from "./theme.js";

const PLACES = [
  {label: "Queues", path: [], pages: ["overview", "queue", "jobs", "job"], key: "g q"},
  {label: "Dead letters", path: ["dead-letters"], pages: ["dead_letters"], key: "g d"},
  {label: "Workers", path: ["workers"], pages: ["workers"], key: "g w"},
  {label: "Schedules", path: ["schedules"], pages: ["schedules"], key: "g c"},
  {label: "Batches", path: ["batches"], pages: ["batches"], key: "g b"},
  {label: "Log", path: ["log"], pages: ["log"], key: "g l"},
  {label: "Server", path: ["server"], pages: ["server"], key: "g s"},
];

/** Everything on the screen. */
export function Shell() {
  const route = useRoute();
  const [helps, setHelps] = useState(false);
  const shortcuts = PLACES.map(({key, path, label}) => [
    key,
    [() => navigate(link(path)), `Go to ${label}`],
  ]);
  useKeys({
    ...Object.fromEntries(shortcuts),
    "g j": [() => goToJobs(route), "Go to the jobs of this queue"],
    "?": [() => setHelps(true), "Show these keys"],
  });
  return html`
    <a class="skip" href="#main">Skip to content</a>
    <${Header} page=${route.page} onHelp=${() => setHelps(true)} />
    <${ConnectionLine} />
    <main id="main" tabindex="-1"><${CurrentPage} route=${route} /></main>
    <${Notices} />
    <${DialogHost} />
    <${KeyDialog} />
    ${helps && html`<${Help} onClose=${() => setHelps(false)} />`}
  `;
}

function goToJobs({params}) {
  if (params.queue) navigate(link(["queues", params.queue, "jobs"]));
  else notify("Jobs are those of one queue: open a queue first");
}

function Header({page, onHelp}) {
  const [theme, nextTheme] = useTheme();
  return html`
    <header class="top">
      <a class="brand" href=${link([])} aria-label="logqueue: overview">
        <img src="/ui/icon.svg" alt="" width="20" height="20" /><span>logqueue</span>
      </a>
      <nav aria-label="Pages">
        ${PLACES.map(
          (place) => html`<a
            href=${link(place.path)}
            aria-current=${place.pages.includes(page) ? "page" : null}
            title=${`${place.label} (${place.key})`}
            >${place.label}</a
          >`,
        )}
      </nav>
      <${Health} />
      <div class="tools">
        ${hasKey() &&
        html`<button class="quiet" title="Forget the API key of this tab" onClick=${forgetKey}>
          Sign out
        </button>`}
        <button class="quiet" onClick=${nextTheme} title=${`Theme: ${theme}`}>
          <span class=${`icon icon-${theme}`} aria-hidden="true"></span>
          <span class="hidden">Theme: ${theme}</span>
        </button>
        <button class="quiet" onClick=${onHelp} title="Keys (?)">
          <span aria-hidden="true">?</span><span class="hidden">Keyboard help</span>
        </button>
      </div>
    </header>
  `;
}

const HEALTH = {ok: ["ok", "All right"], attention: ["warn", "Attention"], bad: ["bad", "Trouble"]};

function Health() {
  const [status, health, text] = useFeed((feed) => [
    feed.status,
    feed.server?.health,
    feed.server?.health_text,
  ]);
  if (status === "lost") return html`<span class="health"><i class="dot bad" />No connection</span>`;
  if (!health) return html`<span class="health"><i class="dot" />Connecting</span>`;
  const [kind, word] = HEALTH[health] ?? ["warn", health];
  return html`<a class="health" href=${link([])} title=${text ?? word}
    ><i class=${`dot ${kind}`} /><span>${word}</span></a
  >`;
}

function ConnectionLine() {
  const [status, since, problem, isThere, at, role] = useFeed((feed) => [
    feed.status,
    feed.since,
    feed.problem,
    feed.isThere,
    feed.at,
    feed.server?.role,
  ]);
  const wantsKey = useDeclined();
  useNow();
  if (wantsKey) {
    return html`<div class="connection" role="status">
      <p>This server asks for an API key. <button class="small" onClick=${askAgain}>Enter a key</button></p>
    </div>`;
  }
  if (role === "standby" && status === "live") {
    return html`<div class="connection" role="status">
      <p class="notable">
        <strong>This server is a standby.</strong>${" "}It shows what it has read from the replica; changes
        are made at the writer.
      </p>
    </div>`;
  }
  const isAway = status === "lost" && Date.now() - since > 1200;
  return html`<div class="connection" role="status">
    ${isAway &&
    html`<p>
      <strong>${isThere ? "No live numbers" : "The server has been away"}</strong>${" "}
      for ${duration(roundedDown(Date.now() - since))}: ${problem}.${" "}
      ${at > 0 ? "The last numbers are shown. " : ""}Trying again.
    </p>`}
  </div>`;
}

function roundedDown(ms) {
  return Math.floor(ms / 1000) * 1000;
}

/** The module of the page, loaded when it is first shown. */
function CurrentPage({route}) {
  const [loaded, setLoaded] = useState(null);
  const {page, path} = route;
  // Without waiting for the frame to be painted.
  useLayoutEffect(() => {
    if (page === null) return undefined;
    let isWanted = true;
    import(`./pages/${page}.js`).then(
      (module) => isWanted && setLoaded({page, Shown: module.default}),
      (error) => isWanted && setLoaded({page, error}),
    );
    return () => {
      isWanted = false;
    };
  }, [page]);
  useFocusOnChange(path);
  if (page === null) return html`<${Missing} path=${path} />`;
  if (loaded === null || loaded.page !== page) return html`<p class="loading">Loading the page…</p>`;
  if (loaded.error) return html`<${Broken} error=${loaded.error} />`;
  return html`<${Guarded} key=${path} Shown=${loaded.Shown} params=${route.params} />`;
}

function Guarded({Shown, params}) {
  useScopes();
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  if (error) return html`<${Broken} error=${error} onRetry=${reset} />`;
  return html`<${Shown} params=${params} />`;
}

/** After another page is shown, keys and screen readers continue at its content. */
function useFocusOnChange(path) {
  const shown = useRef(path);
  useEffect(() => {
    if (shown.current === path) return;
    shown.current = path;
    document.getElementById("main")?.focus({preventScroll: true});
  }, [path]);
}

function Missing({path}) {
  return html`<${Page} title="No such page">
    <p>There is no page at <code>${path}</code>. Go to <a href=${link([])}>all queues</a>.</p>
  <//>`;
}

function Broken({error, onRetry}) {
  return html`<${Page} title="This page has failed">
    <p>Other pages still work. What happened:</p>
    <pre class="code">${String(error?.stack ?? error)}</pre>
    <p>
      <button onClick=${() => (onRetry ? onRetry() : location.reload())}>Try again</button>
    </p>
  <//>`;
}

function Help({onClose}) {
  const keys = useKeyList();
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">
      ${keys.map(
        ([key, what]) => html`<div key=${key}>
          <dt>${key.split(" ").map((one) => html`<kbd>${one}</kbd>`)}</dt>
          <dd>${what}</dd>
        </div>`,
      )}
    </dl>
    <p class="soft">
      All of it works over the <a href="/docs">API</a>; what a page does, a script can do.
    </p>
  <//>`;
}
