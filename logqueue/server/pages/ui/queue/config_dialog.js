// Editing a queue's config: fields or JSON, then the difference, then one call that is refused when
// the config was changed by another editor meanwhile.

import {html, useMemo, useState} from "../vendor/htm-preact.js";
import {api, apiPath} from "../api.js";
import {duration} from "../format.js";
import {Dialog, Refusal} from "../parts/dialog.js";
import {DiffView} from "../parts/diff_view.js";
import {checkJson, JsonEditor} from "../parts/json_editor.js";
import {written} from "../parts/json_view.js";
import {notify} from "../parts/notices.js";
import {patched, patchOf} from "./merge_patch.js";

const FIELDS = [
  ["lease_ms", "Lease, ms", "number", "Until an unacked job returns"],
  ["max_deliveries", "Max. deliveries", "number", "0: no limit"],
  ["dead_letter", "Dead-letter topic", "text", "Empty: none"],
  ["on_exhausted", "After the last delivery", ["dead_letter", "drop", "hold"], "Default: dead_letter where there is one"],
  ["max_in_flight", "Max. in flight", "number", "0: no limit"],
  ["ttl_ms", "Lifetime, ms", "number", "0: no limit"],
  ["cap_records", "Max. records", "number", "0: no limit"],
  ["archive", "Archive topic", "text", "Copies of finished jobs; empty: none"],
  ["priority_ageing_ms", "Ageing, ms", "number", "A waiting job gains a priority per this time; 0: never"],
  ["groups.mode", "Groups", ["fair", "fifo"], "They take turns; or one job of each at a time"],
  ["groups.max_in_flight_per_group", "Max. in flight of a group", "number", "0: no limit"],
  ["results.keep_ms", "Keep results, ms", "number", "0: not kept"],
  ["durability", "Durability", ["ephemeral", "memory", "disk", "fsync"], ""],
];

/** Members of an object that is there only with this one. */
const CARRIERS = ["groups.mode", "results.keep_ms"];

/** The value of a field; a name with a dot is a member of an object. */
function valueOf(config, name) {
  return name.split(".").reduce((value, part) => value?.[part], config);
}

/** A config with another value; an object goes with the field that it is there for. */
function withValue(config, name, value) {
  const [outer, inner] = name.split(".");
  if (inner === undefined) return {...config, [name]: value};
  if (CARRIERS.includes(name) && !value) return {...config, [outer]: null};
  return {...config, [outer]: {...config[outer], [inner]: value}};
}

/** What can be edited: pausing is a button of its own, and types never change. */
function editable(config) {
  const {paused, type, durable, ...rest} = config;
  return rest;
}

/**
 * @param {{queue: string, config: object, version: string, onClose: () => void,
 *   onSaved: () => void}} props
 */
export function ConfigDialog({queue, config, version, onClose, onSaved}) {
  const [base, setBase] = useState({config: editable(config), version});
  const [text, setText] = useState(() => written(editable(config)));
  const [step, setStep] = useState("edit");
  const [conflict, setConflict] = useState(null);
  const [isSending, setSending] = useState(false);
  const [error, setError] = useState(null);
  const check = useMemo(() => checkJson(text), [text]);
  const after = check.error ? null : check.value;
  const patch = useMemo(() => (after ? patchOf(base.config, after) : {}), [after, base]);
  const isSame = Object.keys(patch).length === 0;
  const save = async () => {
    setSending(true);
    setError(null);
    try {
      const path = `${apiPath("topics", queue)}?if_version=${encodeURIComponent(base.version)}`;
      const reply = await api.patch(path, patch);
      notify(`Config of ${queue} changed`, {undo: () => undo(queue, patchOf(after, base.config), reply)});
      onSaved();
      onClose();
    } catch (error) {
      if (error.code === "config_changed" && error.detail?.config) setConflict(error.detail);
      else setError(error);
    }
    setSending(false);
  };
  const back = () => {
    setError(null);
    setStep("edit");
  };
  const rebase = () => {
    const present = editable(conflict.config);
    setBase({config: present, version: conflict.config_version});
    setText(written(patched(present, patch)));
    setConflict(null);
  };
  return html`<${Dialog} title=${`Config of ${queue}`} wide onClose=${onClose}>
    ${conflict
      ? html`<${Conflict} base=${base} conflict=${conflict} onTake=${rebase} />`
      : step === "edit"
        ? html`<${Edit} text=${text} setText=${setText} check=${check} />`
        : html`<p>This will change:</p>
            <${DiffView} before=${written(base.config)} after=${written(after)} label="Change of the config" />`}
    <${Refusal} error=${error} doing="Not changed" />
    ${!conflict &&
    html`<div class="dialog-actions">
      ${step === "edit"
        ? html`<button onClick=${onClose}>Cancel</button>
            <button
              class="primary"
              disabled=${check.error !== null || isSame}
              onClick=${() => setStep("review")}
            >
              ${isSame ? "Nothing is changed" : "Review the change"}
            </button>`
        : html`<button onClick=${back}>Back</button>
            <button class="primary" disabled=${isSending || isSame} onClick=${save}>
              ${isSending ? "Saving…" : "Save the config"}
            </button>`}
    </div>`}
  <//>`;
}

async function undo(queue, patch, reply) {
  await api.patch(`${apiPath("topics", queue)}?if_version=${reply.config_version}`, patch);
  notify(`Config of ${queue} is as before`);
}

function Conflict({base, conflict, onTake}) {
  return html`<div role="alert">
      <p class="problem"><strong>The config was changed by another editor while you had it open.</strong></p>
      <p>Nothing of yours is saved yet, and nothing you typed is lost. What changed meanwhile:</p>
    </div>
    <${DiffView}
      before=${written(base.config)}
      after=${written(editable(conflict.config))}
      label="What another editor has changed"
    />
    <div class="dialog-actions">
      <button class="primary" autofocus onClick=${onTake}>Apply my changes to this config</button>
    </div>`;
}

function Edit({text, setText, check}) {
  const [isJson, setJson] = useState(false);
  const value = check.error ? null : check.value;
  const set = (name, next) => setText(written(withValue(value, name, next)));
  const isThere = ([name]) => !name.includes(".") || CARRIERS.includes(name) || Boolean(value[name.split(".")[0]]);
  return html`
    <div class="segmented" role="group" aria-label="How to edit">
      <button aria-pressed=${!isJson} disabled=${value === null} onClick=${() => setJson(false)}>Fields</button>
      <button aria-pressed=${isJson} onClick=${() => setJson(true)}>JSON, all members</button>
    </div>
    ${isJson || value === null
      ? html`<${JsonEditor} value=${text} onChange=${setText} label="Config" rows=${22} />`
      : html`<div class="fields">
          ${FIELDS.filter(isThere).map(
            (field) => html`<${Field} key=${field[0]} field=${field} value=${valueOf(value, field[0])} set=${set} />`,
          )}
        </div>`}
  `;
}

function Field({field, value, set}) {
  const [name, label, kind, hint] = field;
  const onNumber = (event) => {
    const number = Number(event.target.value);
    if (event.target.value !== "" && Number.isSafeInteger(number) && number >= 0) set(name, number);
  };
  const onText = (event) => set(name, event.target.value.trim() || null);
  return html`<div class="field">
    <label
      ><span>${label}</span>
      ${Array.isArray(kind)
        ? html`<select value=${value ?? ""} onChange=${(event) => set(name, event.target.value || null)}>
            ${(name === "durability" ? kind : ["", ...kind]).map(
              (one) => html`<option key=${one} value=${one}>${one || "default"}</option>`,
            )}
          </select>`
        : kind === "number"
          ? html`<input type="number" min="0" step="1" value=${value ?? 0} onInput=${onNumber} />`
          : html`<input value=${value ?? ""} onInput=${onText} autocomplete="off" spellcheck=${false} />`}
    </label>
    <small class="soft">${name.endsWith("_ms") && value > 0 ? `${duration(value)}. ` : ""}${hint}</small>
  </div>`;
}
