// The records of one topic as a bounded list: followed live, or read page by page around a place.

import {api, ApiError, apiPath} from "../api.js";

export const ROWS_MAX = 4000;
const BYTES_MAX = 48_000_000;
const LARGE_BYTES = 32_000; // larger data is fetched again when it is looked at
const FIRST_ROWS = 200;
const PAGE_ROWS = 300;
const CONTEXT_ROWS = 60; // before the place that was asked for
const PAGES_PER_SEARCH = 20; // with a filter, this many pages without a match end a search
const LAG_MAX = 4000; // records behind the head beyond which some are skipped
const SKIP_EVERY_MS = 1000;
const DRAW_MS = 100;
const RETRY_MS = [300, 800, 1500, 3000, 5000];
const BATCH_BYTES = 128_000;
const DEPTH_MAX = 200;

/** Whether a record has one of the tags: "" all, "a" exactly that, "a*" a prefix. */
export function tagFits(filter, tag) {
  if (!filter) return true;
  if (tag === undefined) return false;
  return filter.endsWith("*") ? tag.startsWith(filter.slice(0, -1)) : tag === filter;
}

/** About how many bytes a value takes. */
function weight(value, depth = 0) {
  if (typeof value === "string") return 40 + 2 * value.length;
  if (typeof value !== "object" || value === null) return 16;
  if (depth > DEPTH_MAX) return LARGE_BYTES;
  let sum = 60;
  if (Array.isArray(value)) for (const item of value) sum += weight(item, depth + 1);
  else for (const name in value) sum += 60 + weight(value[name], depth + 1);
  return sum;
}

/** One line of JSON, cut where it gets long; it costs as much as it shows. */
export function preview(value, limit = 400) {
  const parts = [];
  let left = limit;
  const add = (text) => {
    parts.push(text.slice(0, left));
    left -= text.length;
  };
  const walk = (one, depth) => {
    if (left <= 0) return;
    if (depth > DEPTH_MAX) add("…");
    else if (typeof one === "string") add(JSON.stringify(one.slice(0, left + 1)));
    else if (typeof one !== "object" || one === null) add(String(one));
    else if (JSON.isRawJSON?.(one)) add(one.rawJSON);
    else if (Array.isArray(one)) {
      add("[");
      for (let i = 0; i < one.length && left > 0; i += 1) {
        if (i > 0) add(",");
        walk(one[i], depth + 1);
      }
      add("]");
    } else {
      add("{");
      let isFirst = true;
      for (const name in one) {
        if (left <= 0) break;
        add(`${isFirst ? "" : ","}${JSON.stringify(name)}:`);
        isFirst = false;
        walk(one[name], depth + 1);
      }
      add("}");
    }
  };
  walk(value, 0);
  return left < 0 ? `${parts.join("")}…` : parts.join("");
}

function rowOf(record) {
  const size = weight(record.data) + weight(record.meta);
  const isLarge = size > LARGE_BYTES;
  return {
    key: Number(record.$seq),
    seq: Number(record.$seq),
    ts: record.$ts,
    tag: record.$tag,
    node: record.$node,
    data: isLarge ? undefined : record.data,
    meta: isLarge ? undefined : record.meta,
    text: isLarge ? preview(record.data) : null,
    isLarge,
    size: 200 + (isLarge ? 800 : size),
  };
}

function gapOf({gap_from: from, gap_to: to, reason}) {
  return {key: `gap-${from}`, seq: Number(to), gap: {from, to, reason}, size: 200};
}

/** The text of a row's data in one line. */
export function textOf(row) {
  row.text ??= preview(row.data);
  return row.text;
}

/** All of one record, also when its row does not hold it; null when it is gone. */
export async function fetchRecord(topic, seq, signal) {
  const path = apiPath("topics", topic, "diff");
  const body = {from_seq: seq - 1, limit: 1, include_tags: true};
  const {records} = await api.post(path, body, {signal});
  const found = records[0];
  return found && Number(found.$seq) === seq ? found : null;
}

/**
 * @typedef {object} TailState
 * @property {object[]} rows oldest first
 * @property {"loading"|"following"|"stopped"|"lost"|"deleted"|"missing"|"failed"} status
 * @property {string|null} problem
 * @property {number} received records that came live
 * @property {number} skipped records that were never fetched, to keep up
 * @property {number} hidden records that the filter has left out
 * @property {number} head the newest seq, as far as is known
 * @property {number} earliest
 * @property {number} rate records per second that come
 */

/** Reads one topic. `onChange` is called when there is something new to draw, at most ten times a second. */
export class Tail {
  constructor(topic, onChange) {
    this.topic = topic;
    this.onChange = onChange;
    this.tag = "";
    this.rows = [];
    this.bytes = 0;
    this.status = "loading";
    this.problem = null;
    this.received = 0;
    this.skipped = 0;
    this.hidden = 0;
    this.head = 0;
    this.earliest = 1;
    this.rate = 0;
    this.cursor = 0; // everything up to here was read
    this.first = 0; // and from behind this
    this.shift = 0; // rows taken from the front since the last draw, negative for rows put there
    this.hasTags = false; // whether any record so far has had one
    this.hasNodes = false;
    this.isReading = false;
    this.stopper = new AbortController();
    this.timer = 0;
    this.arrivals = [];
    this.maySkipAt = 0;
  }

  /** Begin at the newest records and follow, or at a place and stay there. */
  async open({seq = null, tag = ""}) {
    this.abort();
    Object.assign(this, {tag, rows: [], bytes: 0, status: "loading", problem: null, hidden: 0, skipped: 0});
    this.changed(true);
    const {signal} = this.stopper;
    try {
      const state = await api.get(`${apiPath("topics", this.topic)}?touch=false`, {signal});
      this.head = Number(state.head_seq);
      this.earliest = Number(state.earliest_seq);
      const start = seq === null ? this.head - FIRST_ROWS : Math.min(seq - 1, this.head);
      this.cursor = Math.max(start, this.earliest - 1, 0);
      this.first = this.cursor;
      await this.readOn(signal);
      // Records may have been removed, or have other tags.
      const wanted = seq === null ? FIRST_ROWS - this.rows.length : CONTEXT_ROWS;
      await this.readBack(signal, wanted);
    } catch (error) {
      this.fail(error, signal);
      return;
    }
    if (signal.aborted) return;
    if (seq === null) this.follow();
    else this.settle("stopped");
  }

  /** Show what comes from now on; continue where reading has stopped. */
  async follow() {
    this.abort();
    const {signal} = this.stopper;
    this.arrivals = [];
    let failures = 0;
    this.settle("following");
    for (;;) {
      try {
        await this.stream(signal, () => {
          failures = 0;
          this.settle("following");
        });
        if (signal.aborted || this.status === "deleted") return;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && [401, 403, 404].includes(error.status)) {
          this.fail(error, signal);
          return;
        }
        this.problem = error.message ?? String(error);
        this.settle("lost");
      }
      const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
      failures += 1;
      await new Promise((resolve) => {
        setTimeout(resolve, this.isSkipping ? 0 : wait);
      });
      this.isSkipping = false;
      if (signal.aborted) return;
    }
  }

  /** Read nothing more; what is shown stays. */
  stop() {
    this.abort();
    this.settle("stopped");
  }

  /** End for good. */
  close() {
    this.abort();
    clearTimeout(this.timer);
    this.onChange = () => {};
  }

  /** More records at one end of what is shown. */
  async more(direction) {
    if (this.isReading || this.status !== "stopped") return;
    const {signal} = this.stopper;
    this.isReading = true;
    this.changed(true);
    try {
      if (direction === "older") await this.readBack(signal, PAGE_ROWS);
      else await this.readOn(signal);
    } catch (error) {
      if (!signal.aborted) this.problem = error.message ?? String(error);
    }
    this.isReading = false;
    this.changed(true);
  }

  get hasOlder() {
    return this.first >= this.earliest;
  }

  get hasNewer() {
    return this.cursor < this.head;
  }

  // -- reading pages ---------------------------------------------------------------------------

  async page(fromSeq, limit, signal) {
    const body = {from_seq: fromSeq, limit, include_tags: true, max_batch_bytes: 4_000_000};
    const found = await api.post(apiPath("topics", this.topic, "diff"), body, {signal});
    this.head = Number(found.head_seq);
    this.earliest = Number(found.earliest_seq);
    return found;
  }

  async readOn(signal) {
    for (let pages = 0; pages < PAGES_PER_SEARCH; pages += 1) {
      const page = await this.page(this.cursor, PAGE_ROWS, signal);
      if (signal.aborted) return;
      const rows = this.fitting(page.records);
      if (page.tombstone) rows.unshift(gapOf(page.tombstone));
      this.cursor = Number(page.next_from_seq);
      this.append(rows);
      if (rows.length > 0 || page.caught_up) return;
    }
  }

  async readBack(signal, wanted) {
    let span = wanted;
    let count = 0;
    for (let pages = 0; pages < PAGES_PER_SEARCH && this.hasOlder && count < wanted; pages += 1) {
      const end = this.first;
      const start = Math.max(end - span, this.earliest - 1, 0);
      const found = await this.between(start, end, signal);
      if (signal.aborted) return;
      this.first = start;
      count += found.length;
      this.prepend(found);
      // Where little is left, or little fits, the next look goes further back.
      if (found.length < span / 4) span = Math.min(span * 2, 5000);
    }
  }

  async between(start, end, signal) {
    const rows = [];
    let at = start;
    while (at < end) {
      const page = await this.page(at, Math.min(end - at, 1000), signal);
      if (signal.aborted) return rows;
      rows.push(...this.fitting(page.records.filter((record) => Number(record.$seq) <= end)));
      const next = Number(page.next_from_seq);
      if (next <= at || page.caught_up) break;
      at = next;
    }
    return rows;
  }

  // -- the live stream -------------------------------------------------------------------------

  async stream(signal, onOpen) {
    const body = {
      topics: {[this.topic]: {from_seq: this.cursor}},
      include_tags: true,
      max_batch_bytes: BATCH_BYTES,
      heartbeat_ms: 15_000,
    };
    const session = await api.post("/v0/watch", body, {signal});
    const inner = new AbortController();
    const end = () => inner.abort();
    signal.addEventListener("abort", end);
    let watchdog = 0;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(end, 45_000);
    };
    const onEvent = (event, data) => {
      if (!signal.aborted && !inner.signal.aborted) this.take(event, data, end);
    };
    try {
      const path = session.stream_url;
      await api.stream(path, {onEvent, onOpen, onBytes: alive, signal: inner.signal});
    } catch (error) {
      if (!inner.signal.aborted || signal.aborted) throw error;
      if (!this.isSkipping) throw new Error("the server has gone silent");
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", end);
      inner.abort();
    }
  }

  take(event, data, end) {
    if (event === "record") this.takeRecords(data, end);
    else if (event === "tombstone") {
      this.head = Number(data.head_seq);
      this.earliest = Number(data.earliest_seq);
      this.cursor = Math.max(this.cursor, Number(data.gap_to));
      this.append([gapOf(data)]);
    } else if (event === "caught-up") this.head = Number(data.head_seq);
    else if (event === "topic-deleted") this.settle("deleted");
  }

  takeRecords({records, to_seq: to, head_seq: head}, end) {
    this.cursor = Number(to);
    this.head = Number(head);
    this.received += records.length;
    this.arrivals.push([performance.now(), records.length]);
    this.append(this.fitting(records));
    const lag = this.head - this.cursor;
    // Each time takes a session of the server, so not more often than this.
    if (lag > LAG_MAX && performance.now() > this.maySkipAt) {
      this.maySkipAt = performance.now() + SKIP_EVERY_MS;
      const next = this.head - FIRST_ROWS;
      this.skipped += next - this.cursor;
      this.append([{key: `skip-${next}`, seq: next, skip: {from: this.cursor + 1, to: next}, size: 200}]);
      this.cursor = next;
      this.isSkipping = true;
      end();
    }
  }

  // -- the list --------------------------------------------------------------------------------

  fitting(records) {
    if (!this.tag) return records.map(rowOf);
    const found = records.filter((record) => tagFits(this.tag, record.$tag));
    this.hidden += records.length - found.length;
    return found.map(rowOf);
  }

  append(rows) {
    if (rows.length === 0) {
      this.changed();
      return;
    }
    this.note(rows);
    let all = this.rows.concat(rows);
    for (const row of rows) this.bytes += row.size;
    let drop = Math.max(0, all.length - ROWS_MAX);
    let bytes = this.bytes;
    for (let i = 0; i < drop; i += 1) bytes -= all[i].size;
    while (bytes > BYTES_MAX && drop < all.length - 1) {
      bytes -= all[drop].size;
      drop += 1;
    }
    if (drop > 0) {
      this.first = all[drop - 1].seq;
      all = all.slice(drop);
      this.shift += drop;
    }
    this.rows = all;
    this.bytes = bytes;
    this.changed();
  }

  prepend(rows) {
    if (rows.length === 0) return;
    this.note(rows);
    const all = [...rows, ...this.rows];
    for (const row of rows) this.bytes += row.size;
    while (all.length > ROWS_MAX || (this.bytes > BYTES_MAX && all.length > 1)) {
      this.bytes -= all.pop().size;
      this.cursor = all.at(-1).seq;
    }
    this.shift -= rows.length;
    this.rows = all;
    this.changed();
  }

  note(rows) {
    this.hasTags ||= rows.some((row) => row.tag !== undefined);
    this.hasNodes ||= rows.some((row) => row.node !== undefined);
  }

  // -- telling ---------------------------------------------------------------------------------

  settle(status) {
    this.status = status;
    if (status === "following" || status === "stopped") this.problem = null;
    this.changed(true);
  }

  fail(error, signal) {
    if (signal.aborted) return;
    this.problem = error.message ?? String(error);
    this.settle(error instanceof ApiError && error.status === 404 ? "missing" : "failed");
  }

  abort() {
    this.stopper.abort();
    this.stopper = new AbortController();
    this.isReading = false;
    this.isSkipping = false;
    this.rate = 0;
  }

  changed(isUrgent = false) {
    if (isUrgent) {
      clearTimeout(this.timer);
      this.timer = 0;
      this.draw();
    } else this.timer ||= setTimeout(() => this.draw(), DRAW_MS);
  }

  draw() {
    this.timer = 0;
    const since = performance.now() - 3000;
    while (this.arrivals.length > 0 && this.arrivals[0][0] < since) this.arrivals.shift();
    this.rate = this.arrivals.reduce((sum, [, count]) => sum + count, 0) / 3;
    this.onChange();
  }
}
