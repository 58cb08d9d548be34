// Background work on dead letters: how far it is, and stopping it.

import {html, useEffect, useRef} from "../vendor/htm-preact.js";
import {api, apiPath, useApi, useCan} from "../api.js";
import {counted} from "../format.js";
import {notify, notifyError} from "../parts/notices.js";
import {Progress} from "../parts/progress.js";

const EVERY_MS = 1000;
const IDLE_EVERY_MS = 10_000;
const ACTIONS = {redrive: ["Moving back", "moved back"], drop: ["Dropping", "dropped"]};

/**
 * What runs now, with its progress; what ends while this is shown is reported.
 * @param {{round: number, onChange: () => void}} props round: counts what was started here
 */
export function LetterOperations({round, onChange}) {
  const isRunning = useRef(false);
  const {data, reload} = useApi("/v0/operations", {every: isRunning.current ? EVERY_MS : IDLE_EVERY_MS});
  useEffect(() => {
    if (round > 0) reload();
  }, [round]);
  const all = (data?.operations ?? []).filter((one) => one.action in ACTIONS);
  const running = all.filter((one) => one.state === "running");
  isRunning.current = running.length > 0;
  const known = useRef(new Set());
  useEffect(() => {
    for (const one of all) {
      if (one.state === "running") {
        known.current.add(one.id);
      } else if (known.current.delete(one.id)) {
        report(one);
        onChange();
      }
    }
    if (running.length > 0) onChange();
  }, [data]);
  if (running.length === 0) return null;
  return html`<section class="card card-body operations" aria-label="Work in progress">
    ${running.map((one) => html`<${Running} key=${one.id} operation=${one} reload=${reload} />`)}
  </section>`;
}

function Running({operation, reload}) {
  const isAdmin = useCan("admin");
  const {action, topic, changed, matched, scanned, skipped, total, rate_per_s: rate} = operation;
  // What was examined and is not selected is done with, too.
  const done = scanned - matched + changed + skipped;
  const stop = async () => {
    try {
      await api.del(apiPath("operations", operation.id));
    } catch (error) {
      notifyError(error, "Not stopped");
    }
    reload();
  };
  const pace = rate ? `, ${counted(rate, "letter")} a second at most` : "";
  const label = `${ACTIONS[action][0]} letters of ${topic}${pace}: ${counted(changed, "letter")} so far`;
  return html`<${Progress} label=${label} done=${done} total=${total} onStop=${isAdmin ? stop : null} />`;
}

/** Say how an operation has ended. */
export function report(operation) {
  const {action, topic, state, changed, skipped, targets = [], error} = operation;
  const where = targets.length > 0 ? ` to ${targets.join(", ")}` : "";
  const text = `${counted(changed, "letter")} of ${topic} ${ACTIONS[action][1]}${where}`;
  const kept = skipped > 0 ? `${counted(skipped, "letter")} stayed: no known queue, or no room there` : "";
  if (state === "failed") notify(`${text}, then it failed: ${error?.message ?? ""}`, {kind: "error", detail: kept});
  else if (state === "cancelled") notify(`Stopped: ${text}`, {detail: kept});
  else notify(text, {kind: skipped > 0 && changed === 0 ? "error" : "ok", detail: kept});
}
