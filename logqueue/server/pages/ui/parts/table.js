// Tables: sorted by their headers, walked by keys, and as long as they like.

import {Component, html, useMemo, useRef, useState} from "../vendor/htm-preact.js";
import {useKeys} from "../keyboard.js";
import {ScrollBox} from "./scroll_box.js";
import {scrollToRow, useWindow} from "./window_rows.js";

export const ROW_HEIGHT = 33;
const WINDOWED_FROM = 150;

/**
 * @typedef {object} Column
 * @property {string} key
 * @property {any} label
 * @property {"end"} [align] numbers
 * @property {(row: any) => any} [sort] the value to sort by; without it the column does not sort
 * @property {(row: any) => any} [render] without it, the row's member of this key
 * @property {string} [width] such as "7rem"
 * @property {boolean} [hideOnPhone]
 */

/**
 * @param {{columns: Column[], rows: any[], rowKey: (row: any) => string|number,
 *   onOpen?: (row: any) => void, selected?: Set<any>, onSelect?: (row: any) => void, empty?: any,
 *   label?: string, sort?: {key: string, down: boolean}|null, onSort?: (sort: object) => void,
 *   pinned?: (row: any) => boolean, rowClass?: (row: any) => string, keys?: boolean,
 *   rowKeys?: Record<string, [(row: any) => void, string]>}} props
 *   selected: keys of the chosen rows; sort, onSort: to keep the order elsewhere;
 *   pinned: rows that stay on top; keys: false for a second table on a page; rowKeys: further keys
 *   for the current row, with what they do
 */
export function Table(props) {
  const {columns, rows, rowKey, onOpen, selected, onSelect, empty, label, pinned, rowClass} = props;
  const [ownSort, setOwnSort] = useState(null);
  const sort = props.sort === undefined ? ownSort : props.sort;
  const onSort = props.onSort ?? setOwnSort;
  const [sorted, hold] = useSorted({rows, columns, sort, pinned, rowKey});
  const [cursor, setCursor] = useState(null);
  const isWindowed = sorted.length > WINDOWED_FROM;
  const [body, first, last] = useWindow(isWindowed ? sorted.length : 0, ROW_HEIGHT);
  const at = cursor === null ? -1 : sorted.findIndex((row) => rowKey(row) === cursor);
  const move = (by) => {
    if (sorted.length === 0) return;
    const index = Math.max(0, Math.min(sorted.length - 1, at < 0 && by < 0 ? 0 : at + by));
    setCursor(rowKey(sorted[index]));
    const rowElement = body.current?.querySelector(`[data-row="${index}"]`);
    if (isWindowed) scrollToRow(body.current, index, ROW_HEIGHT);
    else rowElement?.scrollIntoView({block: "nearest"});
  };
  const {rowKeys, keys} = props;
  useRowKeys({isOn: keys !== false, move, row: sorted[at], onOpen, onSelect, rowKeys});
  if (sorted.length === 0 && empty) return empty;
  const drawn = isWindowed ? sorted.slice(first, last) : sorted;
  const offset = isWindowed ? first : 0;
  const span = columns.length + (onSelect ? 1 : 0);
  const isFixed = columns.filter((column) => !column.width).length <= 1;
  return html`<${ScrollBox} onPointerEnter=${() => hold(true)} onPointerLeave=${() => hold(false)}>
    <table
      class=${isFixed ? "table fixed" : "table"}
      style=${isFixed ? {minWidth: leastWidth(columns, Boolean(onSelect))} : null}
      aria-label=${label}
      aria-rowcount=${sorted.length + 1}
    >
      <${Head} columns=${columns} sort=${sort} onSort=${onSort} selects=${Boolean(onSelect)} />
      <tbody ref=${body}>
        <${Spacer} rows=${offset} columns=${span} />
        ${drawn.map((row, i) => {
          const key = rowKey(row);
          return html`<${Row}
            key=${key}
            row=${row}
            columns=${columns}
            index=${offset + i}
            isCurrent=${key === cursor}
            isSelected=${selected?.has(key)}
            onOpen=${onOpen}
            onSelect=${onSelect}
            className=${rowClass?.(row)}
          />`;
        })}
        <${Spacer} rows=${sorted.length - offset - drawn.length} columns=${span} />
      </tbody>
    </table>
  <//>`;
}

const REST_WIDTH = 180;
const SELECT_WIDTH = 34;

/** Narrower, a table of fixed columns scrolls in its box: the column without a width would vanish. */
export function leastWidth(columns, selects) {
  const widths = columns.map(({width}) => (width ? Number.parseInt(width, 10) : REST_WIDTH));
  return `${widths.reduce((sum, one) => sum + one, selects ? SELECT_WIDTH : 0)}px`;
}

function useRowKeys({isOn, move, row, onOpen, onSelect, rowKeys = {}}) {
  const keys = {j: [() => move(1), "Next row"], k: [() => move(-1), "Previous row"]};
  if (onOpen) keys.Enter = [() => row && onOpen(row), "Open the row"];
  if (onSelect) keys.x = [() => row && onSelect(row), "Select the row"];
  for (const [key, [act, what]] of Object.entries(rowKeys)) keys[key] = [() => row && act(row), what];
  useKeys(isOn ? keys : {});
}

/**
 * The rows in order, and what holds that order: rows must not move away under a pointer because
 * their numbers change.
 */
function useSorted({rows, columns, sort, pinned, rowKey}) {
  const held = useRef({isHeld: false, by: "", places: new Map()});
  const by = `${sort?.key} ${sort?.down}`;
  const sorted = useMemo(() => {
    const keeps = held.current.isHeld && held.current.by === by;
    if (keeps) return inPlace(rows, held.current.places, rowKey);
    const fresh = sortedRows(rows, columns, sort, pinned);
    held.current.places = new Map(fresh.map((row, i) => [rowKey(row), i]));
    held.current.by = by;
    return fresh;
  }, [rows, columns, by, pinned]);
  const hold = (isHeld) => {
    held.current.isHeld = isHeld;
  };
  return [sorted, hold];
}

function inPlace(rows, places, rowKey) {
  const placeOf = (row) => places.get(rowKey(row)) ?? places.size;
  return [...rows].sort((a, b) => placeOf(a) - placeOf(b));
}

function Head({columns, sort, onSort, selects}) {
  return html`<thead>
    <tr>
      ${selects && html`<th class="select"><span class="hidden">Selected</span></th>`}
      ${columns.map((column) => {
        const isSorted = sort?.key === column.key;
        const order = isSorted ? (sort.down ? "descending" : "ascending") : null;
        return html`<th
          key=${column.key}
          class=${cellClass(column)}
          aria-sort=${order}
          scope="col"
          style=${column.width ? {width: column.width} : null}
        >
          ${column.sort
            ? html`<button class="sort" onClick=${() => onSort(nextSort(column, sort))}>
                ${column.label}<span class="order" aria-hidden="true">${arrow(order)}</span>
              </button>`
            : column.label}
        </th>`;
      })}
    </tr>
  </thead>`;
}

function arrow(order) {
  if (order === null) return "";
  return order === "descending" ? "↓" : "↑";
}

function nextSort(column, sort) {
  // Numbers begin with the largest, names with the first.
  const down = sort?.key === column.key ? !sort.down : column.align === "end";
  return {key: column.key, down};
}

const DRAWN_BY = ["row", "columns", "index", "isCurrent", "isSelected", "className"];

/** One row. It is drawn again only when it differs: callbacks are new each time and do not count. */
class Row extends Component {
  shouldComponentUpdate(next) {
    return DRAWN_BY.some((name) => next[name] !== this.props[name]);
  }

  render({row, columns, index, isCurrent, isSelected, onOpen, onSelect, className = ""}) {
    const open = (event) => {
      if (!onOpen || event.target.closest("a, button, input, label")) return;
      if (getSelection()?.toString()) return;
      this.props.onOpen(row);
    };
    const classes = [className, isCurrent && "current", isSelected && "chosen", onOpen && "opens"];
    return html`<tr
      class=${classes.filter(Boolean).join(" ")}
      data-row=${index}
      aria-rowindex=${index + 2}
      aria-current=${isCurrent ? "true" : null}
      onClick=${open}
    >
      ${onSelect &&
      html`<td class="select">
        <input
          type="checkbox"
          aria-label="Select this row"
          checked=${Boolean(isSelected)}
          onChange=${() => this.props.onSelect(row)}
        />
      </td>`}
      ${columns.map(
        (column) => html`<td key=${column.key} class=${cellClass(column)}>
          ${column.render ? column.render(row) : row[column.key]}
        </td>`,
      )}
    </tr>`;
  }
}

function cellClass(column) {
  return [column.align === "end" && "end", column.hideOnPhone && "wide-only", column.className]
    .filter(Boolean)
    .join(" ");
}

// No wider than the table: in a fixed layout each further column would take its share.
function Spacer({rows, columns}) {
  if (rows <= 0) return null;
  return html`<tr class="spacer" aria-hidden="true">
    <td colspan=${columns} style=${{height: `${rows * ROW_HEIGHT}px`}}></td>
  </tr>`;
}

function sortedRows(rows, columns, sort, pinned) {
  const column = sort && columns.find((one) => one.key === sort.key);
  if (!column?.sort && !pinned) return rows;
  const keyed = rows.map((row) => [pinned?.(row) ? 0 : 1, column?.sort ? column.sort(row) : 0, row]);
  const sign = sort?.down ? -1 : 1;
  keyed.sort((a, b) => a[0] - b[0] || sign * compared(a[1], b[1]));
  return keyed.map((entry) => entry[2]);
}

function compared(a, b) {
  // What is not known comes below everything that is.
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  if (typeof a === "string" && typeof b === "string") return a < b ? -1 : a > b ? 1 : 0;
  return a - b;
}
