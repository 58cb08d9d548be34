// Log: the records of any topic, live or from any place on.

import {html, useEffect, useMemo, useRef, useState} from "../vendor/htm-preact.js";
import {api, apiPath, useApi, useCan} from "../api.js";
import {useFeed} from "../feed.js";
import {absolute, count, counted, rate, size} from "../format.js";
import {useKeys} from "../keyboard.js";
import {AppendDialog} from "../record_log/append_dialog.js";
import {readPlace} from "../record_log/place.js";
import {CompareDialog, RecordPanel} from "../record_log/record_panel.js";
import {LogRows} from "../record_log/rows.js";
import {ROWS_MAX, Tail} from "../record_log/tail.js";
import {Empty} from "../parts/empty.js";
import {NameFilter} from "../parts/name_filter.js";
import {notify, notifyError} from "../parts/notices.js";
import {Page} from "../parts/page.js";
import {Sparkline} from "../parts/sparkline.js";
import {Table} from "../parts/table.js";
import {link, navigate, useQuery} from "../router.js";

export default function LogPage({params}) {
  if (params.topic === undefined) return html`<${Topics} />`;
  return html`<${TopicLog} key=${params.topic} topic=${params.topic} />`;
}

// -- choosing a topic --------------------------------------------------------------------------

function Topics() {
  const topics = useFeed((feed) => feed.topics);
  const [query, setQuery] = useQuery();
  const rows = useMemo(() => {
    const wanted = (query.q ?? "").toLowerCase();
    const found = [...topics.values()].filter((topic) => topic.name.toLowerCase().includes(wanted));
    return found.sort((a, b) => (a.name < b.name ? -1 : 1));
  }, [topics, query.q]);
  const open = (row) => navigate(link(["log", row.name]));
  const none = topics.size === 0
    ? html`<${Empty} text="There is no topic yet. This appends a first record:" command=${curl("greetings")} />`
    : html`<${Empty} text=${`No topic contains “${query.q}”.`} />`;
  return html`<${Page} title="Log">
    <div class="log-page toolbar">
      <${NameFilter} query=${query} setQuery=${setQuery} />
      <span class="soft">Choose a topic to read its records, live or from any place.</span>
    </div>
    <${Table} columns=${COLUMNS} rows=${rows} rowKey=${(row) => row.name} onOpen=${open} empty=${none} label="Topics" />
  <//>`;
}

const COLUMNS = [
  {
    key: "name",
    label: "Topic",
    sort: (row) => row.name,
    render: (row) => html`<a class="topic-link" href=${link(["log", row.name])}><bdi>${row.name}</bdi></a>`,
  },
  {key: "type", label: "Type", width: "5rem", sort: (row) => row.type, hideOnPhone: true},
  {key: "count", label: "Records", align: "end", width: "7.5rem", sort: (row) => row.count, render: (row) => count(row.count)},
  {key: "bytes", label: "Size", align: "end", width: "7rem", sort: (row) => row.bytes, render: (row) => size(row.bytes), hideOnPhone: true},
  {key: "head", label: "Newest seq", align: "end", width: "8.5rem", sort: (row) => row.head_seq, render: (row) => count(row.head_seq), hideOnPhone: true},
  {key: "rate", label: "In per s", align: "end", width: "6rem", sort: (row) => row.rates?.appended ?? 0, render: (row) => rate(row.rates?.appended ?? 0)},
  {
    key: "recent",
    label: "Last minute",
    width: "9rem",
    hideOnPhone: true,
    render: (row) => html`<${Sparkline} values=${row.recent?.in ?? []} label="Records appended per second" />`,
  },
];

function curl(topic, path = `topics/${encodeURIComponent(topic)}`) {
  const body = `{"records":[{"data":{"hello":"world"}}]}`;
  return `curl ${location.origin}/v0/${path} -H 'content-type: application/json' -d '${body}'`;
}

// -- one topic ---------------------------------------------------------------------------------

/** The tail of a topic, drawn again when it has something new. */
function useTail(topic, seq, tag) {
  const [, redraw] = useState(0);
  const tail = useRef(null);
  tail.current ??= new Tail(topic, () => redraw((n) => n + 1));
  useEffect(() => {
    tail.current.open({seq, tag});
  }, [seq, tag]);
  useEffect(() => () => tail.current.close(), []);
  return tail.current;
}

function TopicLog({topic}) {
  const [query, setQuery] = useQuery();
  const seq = /^\d{1,15}$/.test(query.seq ?? "") ? Number(query.seq) : null;
  const tag = query.tag ?? "";
  const tail = useTail(topic, seq, tag);
  const live = useFeed((feed) => feed.topics.get(topic));
  const known = useApi(`${apiPath("topics", topic)}?touch=false`);
  const [isAppending, setAppending] = useState(false);
  const mayWrite = useCan("write");
  const isQueue = (live?.type ?? known.data?.type) === "queue";
  const actions = html`
    ${isQueue && html`<a class="button" href=${link(["queues", topic])}>Queue</a>`}
    ${mayWrite && html`<button class="primary" onClick=${() => setAppending(true)}>Append…</button>`}
  `;
  useKeys(mayWrite ? {n: [() => setAppending(true), "Append a record"]} : {});
  const append = isAppending && html`<${AppendDialog} topic=${topic} onClose=${() => setAppending(false)} />`;
  return html`<${Page} title=${topic} crumbs=${[["Log", link(["log"])]]} actions=${actions}>
    ${tail.status === "missing"
      ? html`<${Missing} topic=${topic} tail=${tail} seq=${seq} tag=${tag} />`
      : html`<${Reader} topic=${topic} tail=${tail} seq=${seq} tag=${tag} isQueue=${isQueue} setQuery=${setQuery} />`}
    ${append}
  <//>`;
}

function Missing({topic, tail, seq, tag}) {
  return html`<${Empty} text="There is no topic of this name. A first record creates it:" command=${curl(topic)}>
    <button onClick=${() => tail.open({seq, tag})}>Look again</button>
  <//>`;
}

function Reader({topic, tail, seq, tag, isQueue, setQuery}) {
  const {rows, status} = tail;
  const isFollowing = status === "following" || status === "lost";
  const [current, setCurrent] = useState(null);
  const [opened, setOpened] = useState(null);
  const [chosen, setChosen] = useState([]);
  const [isComparing, setComparing] = useState(false);
  const [reveal, setReveal] = useState(null);
  useEffect(() => {
    if (seq === null || status !== "stopped" || rows.length === 0) return;
    const row = rows.find((one) => one.seq >= seq && !one.gap);
    if (!row) return;
    setCurrent(row.key);
    setReveal({key: row.key, isCentred: true});
  }, [seq, status === "loading"]);
  const show = (row) => {
    setCurrent(row.key);
    setOpened(row);
    if (isFollowing) tail.stop();
  };
  const choose = (row) => {
    if (isFollowing) tail.stop();
    setChosen((known) => {
      if (known.some((one) => one.key === row.key)) return known.filter((one) => one.key !== row.key);
      return [...known.slice(-1), row];
    });
  };
  const move = (by) => {
    const records = rows.filter((row) => !row.gap && !row.skip);
    if (records.length === 0) return;
    const at = records.findIndex((row) => row.key === current);
    const next = records[at < 0 ? records.length - 1 : Math.max(0, Math.min(records.length - 1, at + by))];
    if (isFollowing) tail.stop();
    setCurrent(next.key);
    setReveal({key: next.key, isCentred: false});
    if (opened !== null) setOpened(next);
  };
  const follow = () => {
    setOpened(null);
    if (seq !== null) setQuery({seq: null});
    else tail.follow();
  };
  const row = rows.find((one) => one.key === current);
  const compare = () => chosen.length === 2 && setComparing(true);
  useKeys({
    j: [() => move(1), "Next record"],
    k: [() => move(-1), "Previous record"],
    Enter: [() => row && show(row), "Show the record"],
    x: [() => row && choose(row), "Choose the record for a comparison"],
    c: [compare, "Compare the two chosen records"],
    f: [() => (isFollowing ? tail.stop() : follow()), "Follow or stop"],
    Escape: () => setOpened(null),
  });
  return html`<div class="log-page">
    <${Controls} topic=${topic} tail=${tail} seq=${seq} tag=${tag} setQuery=${setQuery} isFollowing=${isFollowing} onFollow=${follow} />
    ${chosen.length > 0 && html`<${Chosen} rows=${chosen} onCompare=${compare} onClear=${() => setChosen([])} />`}
    <div class=${opened ? "log-columns open" : "log-columns"}>
      <div class="card log-card">
        <${Body}
          tail=${tail}
          tag=${tag}
          topic=${topic}
          isFollowing=${isFollowing}
          current=${current}
          marked=${seq}
          chosen=${chosen.map((one) => one.key)}
          reveal=${reveal}
          onOpen=${show}
          onChoose=${choose}
        />
        <${Foot} tail=${tail} />
      </div>
      ${opened &&
      html`<${RecordPanel}
        topic=${topic}
        row=${opened}
        isQueue=${isQueue}
        isChosen=${chosen.some((one) => one.key === opened.key)}
        onChoose=${() => choose(opened)}
        onClose=${() => setOpened(null)}
      />`}
    </div>
    ${isComparing && html`<${CompareDialog} topic=${topic} rows=${chosen} onClose=${() => setComparing(false)} />`}
  </div>`;
}

function Body({tail, tag, topic, isFollowing, ...rest}) {
  if (tail.status === "failed") {
    return html`<div class="log-frame log-note" role="alert">
      <p class="problem">The records are not loaded: ${tail.problem}</p>
      <button onClick=${() => tail.open({seq: null, tag})}>Try again</button>
    </div>`;
  }
  if (tail.rows.length === 0) {
    return html`<div class="log-frame log-note"><${Nothing} tail=${tail} tag=${tag} topic=${topic} /></div>`;
  }
  return html`<${LogRows}
    tail=${tail}
    rows=${tail.rows}
    isFollowing=${isFollowing}
    onLeave=${() => tail.stop()}
    onEdge=${(end) => (end === "older" ? tail.hasOlder : tail.hasNewer) && tail.more(end)}
    ...${rest}
  />`;
}

function Nothing({tail, tag, topic}) {
  if (tail.status === "loading") return html`<p class="soft">Reading the newest records…</p>`;
  if (tail.status === "deleted") return html`<p>The topic was deleted.</p>`;
  if (tag) {
    return html`<p class="soft">
        No record with the tag “${tag}” here${tail.hidden > 0 && `: ${counted(tail.hidden, "record")} with other tags`}.
      </p>
      ${tail.hasOlder && html`<button onClick=${() => tail.more("older")}>Look further back</button>`}`;
  }
  return html`<p class="soft">No records yet. They appear here as they are written:</p>
    <pre class="code" tabindex="0">${curl(topic)}</pre>`;
}

function Controls({topic, tail, seq, tag, setQuery, isFollowing, onFollow}) {
  const jump = useRef(null);
  const [text, setText] = useState("");
  const [typedTag, setTypedTag] = useState(tag);
  useEffect(() => setTypedTag(tag), [tag]);
  useKeys({"/": [() => jump.current?.focus(), "Jump to a seq or time"]});
  const place = readPlace(text);
  const go = async (event) => {
    event.preventDefault();
    if (place === null) return;
    let to = place.seq;
    if (to === undefined) {
      try {
        const found = await api.get(`${apiPath("topics", topic)}/seq_at?ts=${place.ts}`);
        to = Number(found.seq);
        if (to > Number(found.head_seq)) notify(`No record was written at or after ${absolute(place.ts)}`);
      } catch (error) {
        notifyError(error, "Not found");
        return;
      }
    }
    jump.current.blur();
    const isSame = String(to) === String(seq ?? "");
    if (isSame) tail.open({seq: to, tag});
    else setQuery({seq: Math.max(to, 1)}, {push: true});
  };
  const filter = (event) => {
    event.preventDefault();
    setQuery({tag: typedTag});
  };
  return html`<div class="toolbar log-tools">
    <div class="segmented" role="group" aria-label="Live or stopped">
      <button aria-pressed=${isFollowing} onClick=${() => isFollowing || onFollow()} title="Show records as they are written (f)">
        <i class=${isFollowing ? (tail.status === "lost" ? "dot bad" : "dot ok") : "dot"} />Follow
      </button>
      <button aria-pressed=${!isFollowing} onClick=${() => isFollowing && tail.stop()} title="Stay here (f)">Stop</button>
    </div>
    <form class="joined jump" onSubmit=${go}>
      <input
        ref=${jump}
        placeholder="Jump to seq or time ( / )"
        aria-label="Jump to seq or time"
        aria-invalid=${text !== "" && place === null ? "true" : null}
        title="A seq: 1204. A time: 14:03, 2026-11-22 14:03:07, or 10m for ten minutes ago"
        value=${text}
        onInput=${(event) => setText(event.target.value)}
      /><button disabled=${place === null}>Go</button>
    </form>
    <form class="joined by-tag" onSubmit=${filter}>
      <input
        type="search"
        placeholder="Tag, or prefix*"
        aria-label="Only records with this tag"
        value=${typedTag}
        onInput=${(event) => setTypedTag(event.target.value)}
      /><button disabled=${typedTag === tag}>Filter</button>
    </form>
    ${tag && html`<button class="small" onClick=${() => setQuery({tag: null})}>All tags</button>`}
    <span class="log-status" role="status">${statusText(tail, isFollowing)}</span>
    ${text !== "" && place === null && html`<span class="problem">Not a seq or a time: try 1204, 14:03 or 10m</span>`}
  </div>`;
}

function statusText(tail, isFollowing) {
  if (tail.status === "loading") return "Reading…";
  if (tail.status === "deleted") return "The topic was deleted";
  if (tail.status === "lost") return `Connection lost, trying again: ${tail.problem}`;
  if (isFollowing) return `${rate(tail.rate)} per s`;
  if (tail.problem) return tail.problem;
  const behind = tail.head - tail.cursor;
  return behind > 0 ? `Stopped, ${counted(behind, "newer record")}` : "Stopped at the newest record";
}

function Chosen({rows, onCompare, onClear}) {
  const names = rows.map((row) => count(row.seq)).join(" and ");
  return html`<div class="toolbar chosen-bar">
    <span>Chosen: ${names}</span>
    <button disabled=${rows.length !== 2} onClick=${onCompare} title="Compare (c)">
      ${rows.length === 2 ? "Compare" : "Choose another to compare"}
    </button>
    <button class="quiet" onClick=${onClear}>Clear</button>
  </div>`;
}

/** What is shown and what is not. */
function Foot({tail}) {
  const {rows, skipped, hidden, earliest, head} = tail;
  const parts = [`${counted(rows.length, "row")} here`];
  if (rows.length >= ROWS_MAX) parts[0] += `, older ones are left out`;
  if (hidden > 0) parts.push(`${count(hidden)} with other tags`);
  if (skipped > 0) parts.push(`${count(skipped)} skipped to keep up`);
  parts.push(head === 0 ? "the topic is empty" : `the topic has seqs ${count(earliest)} to ${count(head)}`);
  return html`<p class="list-foot">${parts.join(" · ")}${tail.isReading && " · reading…"}</p>`;
}
