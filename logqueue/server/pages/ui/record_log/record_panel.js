// One record in full, and the difference of two.

import {html, useEffect, useMemo, useState} from "../vendor/htm-preact.js";
import {absolute, count} from "../format.js";
import {Copy} from "../parts/copy.js";
import {Dialog} from "../parts/dialog.js";
import {DiffView} from "../parts/diff_view.js";
import {JsonView, written} from "../parts/json_view.js";
import {Time} from "../parts/time.js";
import {link} from "../router.js";
import {fetchRecord} from "./tail.js";

/** Data of a row: what it holds, or what the server still has of it. */
function useRecord(topic, row) {
  const [state, setState] = useState({seq: null, record: null, problem: null});
  useEffect(() => {
    if (!row.isLarge) return undefined;
    const stop = new AbortController();
    fetchRecord(topic, row.seq, stop.signal).then(
      (record) => {
        const problem = record === null ? "The record is gone: it was deleted or has expired." : null;
        if (!stop.signal.aborted) setState({seq: row.seq, record, problem});
      },
      (error) => {
        if (!stop.signal.aborted) setState({seq: row.seq, record: null, problem: error.message});
      },
    );
    return () => stop.abort();
  }, [topic, row]);
  if (!row.isLarge) return {data: row.data, meta: row.meta, isThere: true, problem: null};
  const isCurrent = state.seq === row.seq;
  const {record, problem} = isCurrent ? state : {record: null, problem: null};
  return {data: record?.data, meta: record?.meta, isThere: record !== null, problem};
}

/**
 * @param {{topic: string, row: object, isQueue: boolean, isChosen: boolean, onChoose: () => void,
 *   onClose: () => void}} props onChoose: for a comparison
 */
export function RecordPanel({topic, row, isQueue, isChosen, onChoose, onClose}) {
  const {data, meta, isThere, problem} = useRecord(topic, row);
  const address = `${location.origin}${link(["log", topic], {seq: row.seq})}`;
  return html`<section class="card record" aria-label=${`Record ${row.seq}`}>
    <div class="card-head">
      <h2>Record ${count(row.seq)}</h2>
      <button class="small" aria-pressed=${isChosen} onClick=${onChoose} title="Choose for a comparison (x)">
        ${isChosen ? "Chosen" : "Compare"}
      </button>
      <${Copy} text=${address} label="Copy link" />
      <button class="quiet" onClick=${onClose} title="Close (Esc)">
        <span aria-hidden="true">✕</span><span class="hidden">Close the record</span>
      </button>
    </div>
    <div class="card-body">
      <dl class="facts">
        <div><dt>Written</dt><dd>${absolute(row.ts)} <span class="soft">(<${Time} at=${row.ts} />)</span></dd></div>
        ${row.tag !== undefined && html`<div><dt>Tag</dt><dd><bdi>${row.tag}</bdi></dd></div>`}
        ${row.node !== undefined && html`<div><dt>Node</dt><dd><bdi>${row.node}</bdi></dd></div>`}
        ${isQueue && html`<div><dt>Job</dt><dd><a href=${link(["queues", topic, "jobs", row.seq])}>State and history of this job</a></dd></div>`}
      </dl>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${!isThere && !problem && html`<p class="soft">Fetching the record…</p>`}
      ${isThere && html`<${JsonView} value=${data} label="Data" />`}
      ${isThere && meta !== undefined && html`<h3>Meta</h3><${JsonView} value=${meta} label="Meta" />`}
    </div>
  </section>`;
}

/** @param {{topic: string, rows: [object, object], onClose: () => void}} props */
export function CompareDialog({topic, rows, onClose}) {
  const [before, after] = rows[0].seq < rows[1].seq ? rows : [rows[1], rows[0]];
  const title = `Records ${count(before.seq)} and ${count(after.seq)}`;
  return html`<${Dialog} title=${title} wide onClose=${onClose}>
    <${Difference} topic=${topic} before=${before} after=${after} />
  <//>`;
}

function Difference({topic, before, after}) {
  const left = useRecord(topic, before);
  const right = useRecord(topic, after);
  const texts = useMemo(
    () => (left.isThere && right.isThere ? [textOf(before, left), textOf(after, right)] : null),
    [left.isThere, right.isThere, before, after],
  );
  const problem = left.problem ?? right.problem;
  if (problem) return html`<p class="problem" role="alert">${problem}</p>`;
  if (texts === null) return html`<p class="soft">Fetching the records…</p>`;
  return html`<p class="soft">
      <span class="problem">−</span> ${count(before.seq)}, ${absolute(before.ts)}${" "}
      <span class="fine">+</span> ${count(after.seq)}, ${absolute(after.ts)}
    </p>
    <${DiffView} before=${texts[0]} after=${texts[1]} label="What differs" />`;
}

function textOf({tag, node}, {data, meta}) {
  const record = {};
  if (tag !== undefined) record.$tag = tag;
  if (node !== undefined) record.$node = node;
  return written({...record, data, ...(meta === undefined ? {} : {meta})});
}
