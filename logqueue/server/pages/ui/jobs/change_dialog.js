// Before many jobs are changed: how many, what becomes of them, and how fast.

import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {api, apiPath} from "../api.js";
import {count, counted} from "../format.js";
import {Dialog} from "../parts/dialog.js";
import {notifyError} from "../parts/notices.js";
import {PriorityField} from "../parts/priority.js";
import {ACTIONS, STATE_NAMES} from "./states.js";

const UNITS = {s: 1000, min: 60_000, h: 3_600_000, d: 86_400_000};
const SURE_UP_TO = 10;
const YEAR_MS = 366 * UNITS.d;

/** How many jobs a change means now: asked of the server, which changes nothing. */
function useDryRun(queue, body) {
  const [state, setState] = useState({total: null, error: null});
  useEffect(() => {
    const stop = new AbortController();
    setState({total: null, error: null});
    const ask = async () => {
      try {
        const asked = {...body, dry_run: true, wait: true};
        let {operation} = await api.post(apiPath("topics", queue, "jobs", "change"), asked, {signal: stop.signal});
        while (operation.state === "running") {
          await new Promise((resolve) => setTimeout(resolve, 500));
          ({operation} = await api.get(apiPath("operations", operation.id), {signal: stop.signal}));
        }
        setState({total: operation.changed, error: operation.error ?? null});
      } catch (error) {
        if (!stop.signal.aborted) setState({total: null, error});
      }
    };
    ask();
    return () => stop.abort();
  }, [queue, JSON.stringify(body)]);
  return state;
}

/**
 * @param {{queue: string, action: string, filter: object, what: string, onClose: () => void,
 *   onStarted: (operation: object) => void}} props
 *   filter: which jobs, as the API takes it; what: the same in words
 */
export function ChangeDialog({queue, action, filter, what, onClose, onStarted}) {
  const {label, text, done, doing, danger = false, states} = ACTIONS[action];
  const [delay, setDelay] = useState({value: "10", unit: "min"});
  const [priority, setPriority] = useState("5");
  const [isForced, setForced] = useState(false);
  const [rate, setRate] = useState("");
  const [limit, setLimit] = useState("");
  const [typed, setTyped] = useState("");
  const [isSending, setSending] = useState(false);
  const delayMs = Number(delay.value) * UNITS[delay.unit];
  const isTime = action !== "delay" || (delay.value.trim() !== "" && delayMs >= 0 && delayMs <= YEAR_MS);
  const body = {action, filter: {...filter}};
  if (action === "delay") body.delay_ms = isTime ? Math.round(delayMs) : 0;
  if (action === "prioritize") body.priority = Number(priority);
  if (isForced) body.force = true;
  const {total, error} = useDryRun(queue, body);
  const most = limit === "" ? total : Math.min(Number(limit), total ?? Number(limit));
  const isNumbers = [rate, limit].every((one) => one === "" || /^[1-9]\d{0,6}$/.test(one));
  const mustType = danger && most > SURE_UP_TO;
  const isSure = total !== null && (!mustType || typed.trim().replaceAll(",", "") === String(most));
  const submit = useRef(null);
  useEffect(() => {
    // Nothing was typed or chosen yet: Enter is enough.
    const isFree = document.activeElement?.closest("input, select, summary") === null;
    if (total > 0 && !danger && isFree) submit.current?.focus();
  }, [total]);
  const mayGo = isSure && isNumbers && isTime && most > 0 && !isSending;
  const send = async (event) => {
    event.preventDefault();
    if (!mayGo) return;
    setSending(true);
    if (rate !== "") body.rate_per_s = Number(rate);
    if (limit !== "") body.limit = Number(limit);
    try {
      const {operation} = await api.post(apiPath("topics", queue, "jobs", "change"), body);
      onStarted(operation);
      onClose();
    } catch (failure) {
      notifyError(failure, `Not ${done}`);
      setSending(false);
    }
  };
  const number = (value, set) => ({inputmode: "numeric", value, onInput: (event) => set(event.target.value.trim())});
  return html`<${Dialog} title=${`${label} ${what}`} onClose=${onClose}>
    <form onSubmit=${send}>
      <p role="status">
        ${total === null && !error && "Counting the jobs…"}
        ${error && html`<span class="problem">Not counted: ${error.message}</span>`}
        ${total === 0 && html`No job here is ${listed(states, isForced || action !== "cancel")}: nothing to ${label.toLowerCase()}.`}
        ${total > 0 && html`<b class="number">${counted(total, "job")}</b> ${verb(total, text)}`}
      </p>
      ${action === "delay" &&
      html`<div class="field">
        <label for="delay-value">Not before</label>
        <div class="joined delay">
          <input id="delay-value" autofocus aria-invalid=${String(!isTime)} ...${number(delay.value, (value) => setDelay({...delay, value}))} />
          <select aria-label="Unit" value=${delay.unit} onChange=${(event) => setDelay({...delay, unit: event.target.value})}>
            ${[["s", "seconds"], ["min", "minutes"], ["h", "hours"], ["d", "days"]].map(
              ([unit, name]) => html`<option key=${unit} value=${unit}>${name} from now</option>`,
            )}
          </select>
        </div>
        ${!isTime && html`<small class="problem">A number, up to 366 days</small>`}
      </div>`}
      ${action === "prioritize" && html`<${PriorityField} value=${priority} onValue=${setPriority} autofocus />`}
      ${action === "cancel" &&
      html`<label class="choice">
        <input type="checkbox" checked=${isForced} onChange=${() => setForced(!isForced)} />
        <span>Also jobs in flight: what their workers still send is ignored</span>
      </label>`}
      <details>
        <summary>Some of them, or slowly</summary>
        <div class="fields">
          <label class="field"
            ><span>At most in all</span>
            <input placeholder="All of them" ...${number(limit, setLimit)} />
            <small class="soft">Try one before the rest</small></label
          >
          <label class="field"
            ><span>At most per second</span>
            <input placeholder="As fast as possible" ...${number(rate, setRate)} />
            <small class="soft">Spares what is behind the workers</small></label
          >
        </div>
      </details>
      ${mustType &&
      html`<label class="field"
        ><span>Type <code>${count(most)}</code> to confirm</span>
        <input inputmode="numeric" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      </label>`}
      <div class="dialog-actions">
        <button type="button" onClick=${onClose} autofocus=${!["delay", "prioritize"].includes(action)}>Leave them</button>
        <button ref=${submit} type="submit" class=${danger ? "danger" : "primary"} disabled=${!mayGo}>
          ${isSending ? `${doing}…` : most === null ? label : `${label} ${counted(most, "job")}`}
        </button>
      </div>
    </form>
  <//>`;
}

function listed(states, withFlight) {
  const shown = states.filter((state) => withFlight || state !== "in_flight");
  return shown.map((state) => STATE_NAMES[state].toLowerCase()).join(" or ");
}

/** The sentence for one job, or for several. */
function verb(total, text) {
  if (total !== 1) return text;
  return text.replace(/^are /, "is ").replace(/^go /, "goes ");
}
