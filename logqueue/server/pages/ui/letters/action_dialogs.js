// Moving dead letters back, or dropping them: how many, where to, and how fast.

import {html, useEffect, useState} from "../vendor/htm-preact.js";
import {api, apiPath} from "../api.js";
import {useFeed} from "../feed.js";
import {count, counted} from "../format.js";
import {Dialog} from "../parts/dialog.js";
import {notifyError} from "../parts/notices.js";
import {report} from "./operations.js";

/**
 * Which letters: one filter per dead-letter topic.
 * @typedef {{topic: string, filter: object}} Selection
 */

/** How many letters a selection means now: asked of the server, which moves nothing. */
function useDryRun(selections, action) {
  const [state, setState] = useState({total: null, error: null});
  useEffect(() => {
    const stop = new AbortController();
    const ask = async () => {
      try {
        let total = 0;
        for (const {topic, filter} of selections) {
          const body = {...filter, dry_run: true, wait: true};
          const reply = await api.post(apiPath("topics", topic, action), body, {signal: stop.signal});
          total += reply.operation.changed;
        }
        setState({total, error: null});
      } catch (error) {
        if (!stop.signal.aborted) setState({total: null, error});
      }
    };
    ask();
    return () => stop.abort();
  }, []);
  return state;
}

async function start(selections, action, body) {
  let began = false;
  for (const {topic, filter} of selections) {
    const {operation} = await api.post(apiPath("topics", topic, action), {...filter, ...body, wait: !body.rate_per_s});
    if (operation.state !== "running") report(operation);
    began = true;
  }
  return began;
}

/**
 * @param {{selections: Selection[], what: string, onClose: () => void, onStarted: () => void}} props
 *   what: the letters in words, for the title
 */
export function RedriveDialog({selections, what, onClose, onStarted}) {
  const queues = useFeed((feed) => [...feed.topics].filter(([, topic]) => topic.type === "queue").map(([name]) => name));
  const {total, error} = useDryRun(selections, "redrive");
  const [to, setTo] = useState("");
  const [rate, setRate] = useState("");
  const [limit, setLimit] = useState("");
  const [isSending, setSending] = useState(false);
  const most = limit === "" ? total : Math.min(Number(limit), total ?? Number(limit));
  const isValid = [rate, limit].every((text) => text === "" || /^[1-9]\d{0,8}$/.test(text));
  const send = async (event) => {
    event.preventDefault();
    if (!isValid || isSending) return;
    setSending(true);
    const body = {};
    if (to !== "") body.to = to;
    if (rate !== "") body.rate_per_s = Number(rate);
    if (limit !== "") body.limit = Number(limit);
    try {
      await start(selections, "redrive", body);
      onClose();
    } catch (failure) {
      notifyError(failure, "Not all moved");
      setSending(false);
    }
    onStarted();
  };
  return html`<${Dialog} title=${`Redrive ${what}`} onClose=${onClose}>
    <form onSubmit=${send}>
      <p>
        ${total === null && !error && "Counting…"}
        ${error && html`<span class="problem">Not counted: ${error.message}</span>`}
        ${total !== null &&
        html`<b class="number">${counted(total, "letter")}</b> can go back now, as new jobs with their data, tag and key and without deliveries.`}
      </p>
      <label class="field"
        ><span>To</span>
        <input list="queues" placeholder="The queue each came from" value=${to} autocomplete="off" spellcheck=${false}
          onInput=${(event) => setTo(event.target.value)} />
        <datalist id="queues">${queues.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
      </label>
      <div class="fields">
        <label class="field"
          ><span>At most per second</span>
          <input inputmode="numeric" placeholder="As fast as possible" value=${rate} onInput=${(event) => setRate(event.target.value.trim())} />
          <small class="soft">Spares what failed under load</small></label
        >
        <label class="field"
          ><span>At most in all</span>
          <input inputmode="numeric" placeholder="All of them" value=${limit} onInput=${(event) => setLimit(event.target.value.trim())} />
          <small class="soft">Try one before the rest</small></label
        >
      </div>
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>Leave them</button>
        <button type="submit" class="primary" disabled=${!isValid || isSending || total === 0}>
          ${isSending ? "Moving…" : most === null ? "Redrive" : `Redrive ${counted(most, "letter")}`}
        </button>
      </div>
    </form>
  <//>`;
}

/** @param {{selections: Selection[], what: string, onClose: () => void, onStarted: () => void}} props */
export function DropDialog({selections, what, onClose, onStarted}) {
  const {total, error} = useDryRun(selections, "drop");
  const [typed, setTyped] = useState("");
  const [isSending, setSending] = useState(false);
  const isSure = total !== null && (total <= 1 || typed.trim().replaceAll(",", "") === String(total));
  const send = async (event) => {
    event.preventDefault();
    if (!isSure || isSending) return;
    setSending(true);
    try {
      await start(selections, "drop", {});
      onClose();
    } catch (failure) {
      notifyError(failure, "Not all dropped");
      setSending(false);
    }
    onStarted();
  };
  return html`<${Dialog} title=${`Drop ${what}`} onClose=${onClose}>
    <form onSubmit=${send}>
      <p>
        ${total === null && !error && "Counting…"}
        ${error && html`<span class="problem">Not counted: ${error.message}</span>`}
        ${total !== null && html`<b class="number">${counted(total, "letter")}</b> with their data will be deleted. This cannot be undone.`}
      </p>
      ${total > 1 &&
      html`<label class="field"
        ><span>Type <code>${count(total)}</code> to confirm</span>
        <input inputmode="numeric" autocomplete="off" autofocus value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      </label>`}
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>Keep them</button>
        <button type="submit" class="danger" disabled=${!isSure || isSending || total === 0}>
          ${isSending ? "Dropping…" : `Drop ${total === null ? "" : counted(total, "letter")}`}
        </button>
      </div>
    </form>
  <//>`;
}
