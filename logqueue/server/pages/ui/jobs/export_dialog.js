// Jobs as a file of JSON lines: fetched page by page, with progress, and stopped at any time.

import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {api, apiPath} from "../api.js";
import {count, counted, size} from "../format.js";
import {Dialog} from "../parts/dialog.js";
import {Copy} from "../parts/copy.js";
import {Progress} from "../parts/progress.js";

const PER_PAGE = 500;
const BYTES_MAX = 256 * 1024 * 1024;

/** @param {{queue: string, search: string, seqs: number[]|null, what: string, onClose: () => void}} props
 *   search: the filters as a query of the API; seqs: only these jobs */
export function ExportDialog({queue, search, seqs, what, onClose}) {
  const [state, setState] = useState({jobs: 0, scanned: 0, bytes: 0, url: null, error: null, isCut: false});
  const run = useRef(null);
  useEffect(() => {
    const stop = new AbortController();
    run.current = stop;
    exportJobs(queue, search, seqs, stop.signal, (now) => setState((before) => ({...before, ...now}))).catch((error) => {
      if (!stop.signal.aborted) setState((before) => ({...before, error}));
    });
    return () => stop.abort();
  }, []);
  useEffect(() => () => state.url && URL.revokeObjectURL(state.url), [state.url]);
  const {jobs, scanned, bytes, url, error, isCut} = state;
  const command = `curl '${location.origin}${apiPath("topics", queue, "jobs")}?${search.replaceAll("'", "%27")}'`;
  return html`<${Dialog} title=${`Export ${what}`} onClose=${onClose}>
    ${!url && !error && html`<${Progress} label=${`${counted(jobs, "job")}, ${size(bytes)}; ${count(scanned)} examined`} done=${jobs} total=${seqs?.length ?? null} />`}
    ${error && html`<p class="problem" role="alert">Stopped after ${counted(jobs, "job")}: ${error.message}</p>`}
    ${url && html`<p role="status"><b class="number">${counted(jobs, "job")}</b> as JSON lines, ${size(bytes)}.</p>`}
    ${isCut && html`<p class="problem">Only the first ${size(BYTES_MAX)}: use the command line for more.</p>`}
    <details>
      <summary>As a command</summary>
      <div class="command"><pre tabindex="0">${command}</pre><${Copy} text=${command} /></div>
    </details>
    <div class="dialog-actions">
      <button onClick=${onClose}>${url ? "Close" : "Stop"}</button>
      ${url && html`<a class="button primary" href=${url} download=${`${queue.replace(/[^\w.-]/g, "_")}.jsonl`}>Save the file</a>`}
    </div>
  <//>`;
}

async function exportJobs(queue, search, seqs, signal, tell) {
  const parts = [];
  let jobs = 0;
  let scanned = 0;
  let bytes = 0;
  const add = (found) => {
    const text = found.map((job) => `${JSON.stringify(job)}\n`).join("");
    parts.push(text);
    jobs += found.length;
    bytes += text.length;
    tell({jobs, scanned, bytes});
  };
  if (seqs !== null) {
    for (const seq of seqs) {
      const {job} = await api.get(apiPath("topics", queue, "jobs", seq), {signal});
      scanned += 1;
      add([job]);
    }
  } else {
    let after = 0;
    while (after !== undefined && bytes < BYTES_MAX) {
      const page = await api.get(`${apiPath("topics", queue, "jobs")}?${search}&limit=${PER_PAGE}&after=${after}`, {signal});
      scanned += page.scanned;
      add(page.jobs);
      after = page.next_after;
    }
    tell({isCut: after !== undefined});
  }
  const blob = new Blob(parts, {type: "application/x-ndjson"});
  tell({bytes: blob.size, url: URL.createObjectURL(blob)});
}
