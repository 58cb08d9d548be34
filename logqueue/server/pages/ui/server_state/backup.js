// Downloading a backup: by the browser itself, or through this page where a key is needed.

import {html, useRef, useState} from "../vendor/htm-preact.js";
import {api, hasKey} from "../api.js";
import {duration, size} from "../format.js";
import {now} from "../clock.js";
import {Copy} from "../parts/copy.js";
import {notify, notifyError} from "../parts/notices.js";
import {Card} from "./parts.js";

const PATH = "/v0/backup";
const IN_MEMORY_MAX = 1 << 30;

/** @param {{state: object}} props a reply of GET /v0/server */
export function Backup({state}) {
  const [sent, setSent] = useState(null);
  const stop = useRef(null);
  const bytes = state.disk?.logs_bytes ?? 0;
  const download = async () => {
    stop.current = new AbortController();
    setSent(0);
    try {
      await save(bytes, setSent, stop.current.signal);
    } catch (error) {
      if (error?.name !== "AbortError") notifyError(error, "The backup was not saved");
    }
    setSent(null);
  };
  const command = `logqueue backup --url ${location.origin} ./backup`;
  return html`<${Card} title="Backup">
    <div class="card-body stack">
      <p>
        Both logs as they are now, about ${size(bytes)}, as one archive. The server keeps serving.
        <span class="soft"> <code>logqueue restore FILE.tar DATA_DIR</code> makes a data directory of it.</span>
      </p>
      ${state.backup && html`<${Running} backup=${state.backup} />`}
      <div class="toolbar">
        ${hasKey()
          ? sent === null
            ? html`<button onClick=${download} disabled=${Boolean(state.backup)}>Download a backup</button>`
            : html`<span role="status">Downloading: ${size(sent)}</span><button onClick=${() => stop.current.abort()}>Stop</button>`
          : html`<a class="button" href=${PATH} download>Download a backup</a>`}
      </div>
      <div class="command"><pre tabindex="0">${command}</pre><${Copy} text=${command} /></div>
      <p class="soft">The command also checks the backup. Scripts and large logs are better served by it.</p>
    </div>
  <//>`;
}

function Running({backup}) {
  const {sent_bytes: sent, total_bytes: total, started_at: at} = backup;
  return html`<div class="progress">
    <div class="progress-text">
      <span>A backup is being downloaded, for ${duration(now() - at)}</span>
      <span class="number">${size(sent)} of ${size(total)}</span>
    </div>
    <progress aria-label="Backup" value=${sent} max=${Math.max(total, 1)} />
  </div>`;
}

/** The key goes with a header, which links cannot have: the page itself writes the file. */
async function save(bytes, onSent, signal) {
  const suggestedName = `logqueue-backup-${new Date().toISOString().replace(/[-:]|\.\d+/g, "")}.tar`;
  if (typeof showSaveFilePicker === "function") {
    const handle = await showSaveFilePicker({suggestedName});
    const file = await handle.createWritable();
    try {
      await copy((part) => file.write(part), onSent, signal);
      await file.close();
    } catch (error) {
      await file.abort().catch(() => {});
      throw error;
    }
  } else {
    if (bytes > IN_MEMORY_MAX) {
      throw new Error("this browser would hold all of it in memory: use the command below");
    }
    const parts = [];
    await copy((part) => parts.push(part), onSent, signal);
    const url = URL.createObjectURL(new Blob(parts, {type: "application/x-tar"}));
    const link = document.createElement("a");
    link.href = url;
    link.download = suggestedName;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }
  notify("The backup is saved");
}

async function copy(write, onSent, signal) {
  const response = await api.raw("GET", PATH, undefined, {signal});
  const total = Number(response.headers.get("content-length"));
  const reader = response.body.getReader();
  let sent = 0;
  for (;;) {
    const {value, done} = await reader.read();
    if (done) break;
    await write(value);
    sent += value.length;
    onSent(sent);
  }
  if (sent !== total) throw new Error(`the server ended it after ${size(sent)} of ${size(total)}`);
}
