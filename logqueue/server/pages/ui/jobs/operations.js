// Changes of many jobs that run now: how far they are, how to stop them, and how they ended.

import {html, useEffect, useRef} from "../vendor/htm-preact.js";
import {api, apiPath, useApi, useCan} from "../api.js";
import {counted, duration} from "../format.js";
import {notify, notifyError} from "../parts/notices.js";
import {Progress} from "../parts/progress.js";
import {ACTIONS} from "./states.js";

const EVERY_MS = 400;
const IDLE_EVERY_MS = 5000;

/**
 * What runs on a queue, whoever has started it. What ends while this is shown is reported.
 * @param {{queue: string, started: object|null, onChange: () => void}} props
 *   started: the operation that this page has started last
 */
export function JobOperations({queue, started, onChange}) {
  const isRunning = useRef(false);
  const {data, reload} = useApi("/v0/operations", {every: isRunning.current ? EVERY_MS : IDLE_EVERY_MS});
  const known = useRef(new Set());
  useEffect(() => {
    if (started === null) return;
    known.current.add(started.id);
    reload();
  }, [started]);
  const all = (data?.operations ?? []).filter((one) => one.topic === queue && one.action in ACTIONS && !one.dry_run);
  const running = all.filter((one) => one.state === "running");
  isRunning.current = running.length > 0 || known.current.size > 0;
  useEffect(() => {
    for (const one of all) {
      if (one.state === "running") {
        known.current.add(one.id);
      } else if (known.current.delete(one.id)) {
        report(queue, one, onChange);
        onChange();
      }
    }
  }, [data]);
  if (running.length === 0) return null;
  return html`<section class="card card-body job-operations" aria-label="Changes in progress">
    ${running.map((one) => html`<${Running} key=${one.id} operation=${one} reload=${reload} />`)}
  </section>`;
}

function Running({operation, reload}) {
  const isAdmin = useCan("admin");
  const {action, id, matched, changed, scanned, skipped, total, rate_per_s: rate, started_at: began} = operation;
  const stop = async () => {
    try {
      await api.del(apiPath("operations", id));
    } catch (error) {
      notifyError(error, "Not stopped");
    }
    reload();
  };
  const ready = [`${counted(changed, "job")} ${ACTIONS[action].done}`];
  if (skipped > 0) ready.push(`${counted(skipped, "other")} had changed`);
  if (rate) ready.push(`${counted(rate, "job")} a second at most`);
  ready.push(`for ${duration(Math.max(Date.now() - began, 0))}`);
  // With a pace, the changes take the time; else the search for the jobs does.
  const isPaced = rate && scanned >= total;
  return html`<${Progress}
    label=${`${ACTIONS[action].doing}: ${ready.join(", ")}`}
    done=${isPaced ? changed + skipped : scanned}
    total=${isPaced ? matched : total}
    onStop=${isAdmin ? stop : null}
  />`;
}

/** Say how a change has ended, with what undoes it. */
function report(queue, operation, onChange) {
  const {action, state, changed, skipped, undo, error} = operation;
  const text = `${counted(changed, "job")} ${ACTIONS[action].done}`;
  const detail = skipped > 0 ? `${counted(skipped, "other")} had changed meanwhile and ${skipped === 1 ? "was" : "were"} left alone` : "";
  if (state === "failed") {
    notify(`${text}, then it failed: ${error?.message ?? ""}`, {kind: "error", detail});
    return;
  }
  const back = async () => {
    const {operation: done} = await api.post(apiPath("topics", queue, "jobs", "change"), {...undo, wait: true});
    notify(`Undone: ${counted(done.changed, "job")} ${ACTIONS[undo.action].done}`);
    onChange();
  };
  notify(state === "cancelled" ? `Stopped: ${text}` : text, {detail, undo: undo ? back : null});
}
