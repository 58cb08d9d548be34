// The rows of a log in a frame of its own that scrolls: only those near the view are drawn.

import {Component, html, useEffect, useLayoutEffect, useRef, useState} from "../vendor/htm-preact.js";
import {absolute, clock, count} from "../format.js";
import {textOf} from "./tail.js";

export const ROW_HEIGHT = 26;
const MARGIN_ROWS = 12;
const EDGE_PX = 200;
const COLUMNS = [
  ["pick", html`<span class="hidden">Compare</span>`],
  ["seq", "Seq"],
  ["at", "Time"],
  ["tag", "Tag"],
  ["node", "Node"],
  ["data", "Data"],
];
const BOTTOM_PX = 30;

/**
 * @param {{tail: import("./tail.js").Tail, rows: object[], isFollowing: boolean, current: any,
 *   marked: number|null, chosen: any[], onOpen: (row: object) => void,
 *   onChoose: (row: object) => void, onLeave: () => void, onEdge: (end: "older"|"newer") => void,
 *   reveal: {key: any, round: number}|null}} props
 *   onLeave: the reader has scrolled away from the end; reveal: a row to bring into view
 */
export function LogRows(props) {
  const {tail, rows, isFollowing, onLeave, onEdge, reveal} = props;
  const frame = useRef(null);
  const [range, setRange] = useState([0, 60]);
  const isOurs = useRef(false);
  const measure = () => {
    const box = frame.current;
    if (box === null) return;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW_HEIGHT) - MARGIN_ROWS);
    const last = Math.ceil((box.scrollTop + box.clientHeight) / ROW_HEIGHT) + MARGIN_ROWS;
    const from = first - (first % 4);
    setRange((known) => (known[0] === from && known[1] === last ? known : [from, last]));
  };
  useLayoutEffect(() => {
    const box = frame.current;
    const shift = tail.shift;
    tail.shift = 0;
    isOurs.current = true;
    if (isFollowing) box.scrollTop = box.scrollHeight;
    else if (shift !== 0) box.scrollTop -= shift * ROW_HEIGHT;
    measure();
  }, [rows, isFollowing]);
  useLayoutEffect(() => {
    const index = reveal === null ? -1 : rows.findIndex((row) => row.key === reveal.key);
    if (index < 0) return;
    const box = frame.current;
    const top = (index + 1) * ROW_HEIGHT;
    const isSeen = top >= box.scrollTop && top + 2 * ROW_HEIGHT <= box.scrollTop + box.clientHeight;
    isOurs.current = true;
    if (!isSeen || reveal.isCentred) box.scrollTop = top - (reveal.isCentred ? box.clientHeight / 3 : 4 * ROW_HEIGHT);
    measure();
  }, [reveal]);
  useEffect(() => {
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, []);
  const onScroll = () => {
    const box = frame.current;
    measure();
    const below = box.scrollHeight - box.scrollTop - box.clientHeight;
    if (isOurs.current) isOurs.current = false;
    else if (isFollowing && below > BOTTOM_PX) onLeave();
    if (isFollowing) return;
    if (box.scrollTop < EDGE_PX) onEdge("older");
    else if (below < EDGE_PX) onEdge("newer");
  };
  const last = Math.min(rows.length, range[1]);
  const first = Math.min(range[0], Math.max(0, last - 1));
  return html`<div
    class="log-frame"
    ref=${frame}
    onScroll=${onScroll}
    tabindex="0"
    role="region"
    aria-label="Records"
  >
    <table class=${tableClass(tail)} aria-rowcount=${rows.length} aria-label="Records, the newest last">
      <colgroup>
        ${COLUMNS.map(([name]) => html`<col key=${name} class=${name} />`)}
      </colgroup>
      <thead>
        <tr>
          ${COLUMNS.map(([name, label]) => html`<th key=${name} scope="col" class=${name}>${label}</th>`)}
        </tr>
      </thead>
      <tbody>
        <${Space} rows=${first} />
        ${rows.slice(first, last).map((row) => html`<${LogRow}
          key=${row.key}
          row=${row}
          isCurrent=${row.key === props.current}
          isMarked=${row.seq === props.marked}
          isChosen=${props.chosen.includes(row.key)}
          onOpen=${props.onOpen}
          onChoose=${props.onChoose}
        />`)}
        <${Space} rows=${rows.length - last} />
      </tbody>
    </table>
  </div>`;
}

function tableClass({hasTags, hasNodes}) {
  return ["log-rows", !hasTags && "without-tags", !hasNodes && "without-nodes"].filter(Boolean).join(" ");
}

function Space({rows}) {
  if (rows <= 0) return null;
  return html`<tr aria-hidden="true"><td colspan="6" class="space" style=${{height: `${rows * ROW_HEIGHT}px`}}></td></tr>`;
}

const DRAWN_BY = ["row", "isCurrent", "isMarked", "isChosen"];

class LogRow extends Component {
  shouldComponentUpdate(next) {
    return DRAWN_BY.some((name) => next[name] !== this.props[name]);
  }

  render({row, isCurrent, isMarked, isChosen}) {
    if (row.gap || row.skip) {
      return html`<tr class="gap"><td colspan="6">${row.gap ? gapText(row.gap) : skipText(row.skip)}</td></tr>`;
    }
    const open = (event) => {
      if (!event.target.closest("input, label") && !getSelection()?.toString()) this.props.onOpen(row);
    };
    const classes = [isCurrent && "current", isMarked && "marked", isChosen && "chosen"];
    return html`<tr class=${classes.filter(Boolean).join(" ")} onClick=${open} aria-current=${isCurrent ? "true" : null}>
      <td class="pick">
        <input
          type="checkbox"
          aria-label=${`Compare record ${row.seq}`}
          checked=${isChosen}
          onChange=${() => this.props.onChoose(row)}
        />
      </td>
      <td class="seq">${count(row.seq)}</td>
      <td class="at"><time datetime=${iso(row.ts)} title=${absolute(row.ts)}>${clock(row.ts)}<span class="faint">.${millis(row.ts)}</span></time></td>
      <td class="tag">${row.tag !== undefined && html`<bdi title=${row.tag}>${row.tag}</bdi>`}</td>
      <td class="node">${row.node !== undefined && html`<bdi title=${row.node}>${row.node}</bdi>`}</td>
      <td class="data"><bdi>${textOf(row)}</bdi></td>
    </tr>`;
  }
}

function iso(ts) {
  const date = new Date(ts);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}

function millis(ts) {
  return String(((ts % 1000) + 1000) % 1000).padStart(3, "0");
}

const REASONS = {
  cap: "removed by the cap of the topic",
  ttl: "past their TTL",
  mixed: "removed by cap and TTL",
  recreated: "the topic was deleted and created again",
  from_seq_too_old: "removed before they were read",
  source_trim: "removed at their source",
};

function gapText({from, to, reason}) {
  return `Records ${count(Number(from))} to ${count(Number(to))} are gone: ${REASONS[reason] ?? reason}`;
}

function skipText({from, to}) {
  return `${count(to - from + 1)} records skipped to keep up: jump to ${count(from)} to see them`;
}
