// A list of any number of rows: pages are fetched as it is scrolled, rows near the screen drawn.

import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {useKeys} from "../keyboard.js";
import {counted} from "../format.js";
import {ScrollBox} from "./scroll_box.js";
import {leastWidth} from "./table.js";
import {scrollToRow, useWindow} from "./window_rows.js";

const AHEAD = 40;

/**
 * @param {{rowHeight?: number,
 *   fetchPage: (cursor: any, signal: AbortSignal) => Promise<{rows: any[], next: any}>,
 *   renderRow?: (row: any, state: {index: number, isCurrent: boolean}) => any,
 *   columns?: import("./table.js").Column[], rowKey: (row: any) => any, resetKey?: any,
 *   onOpen?: (row: any) => void, selected?: Set<any>, onSelect?: (row: any) => void,
 *   onRows?: (rows: any[], isAll: boolean) => void, empty?: any, label?: string, noun?: string}} props
 *   fetchPage: cursor null for the first page; next null after the last
 *   renderRow: the cells of a row, `<td>`s; or give columns
 *   resetKey: when it changes, the list begins again (a filter, a counter of reloads)
 *   onRows: called with all rows fetched so far
 *   noun: what the rows are, in the singular
 */
export function VirtualList(props) {
  const {rowHeight = 33, rowKey, onOpen, selected, onSelect, empty, label, noun = "row"} = props;
  const {rows, isAll, error, isFetching, more} = usePages(props);
  const [body, first, last] = useWindow(rows.length, rowHeight);
  const [current, setCurrent] = useState(-1);
  useEffect(() => setCurrent(-1), [props.resetKey]);
  useEffect(() => {
    if (!isAll && !isFetching && !error && last + AHEAD >= rows.length) more();
  });
  const move = (by) => {
    if (rows.length === 0) return;
    const index = Math.max(0, Math.min(rows.length - 1, current + by));
    setCurrent(index);
    scrollToRow(body.current, index, rowHeight);
  };
  const keys = {j: [() => move(1), "Next row"], k: [() => move(-1), "Previous row"]};
  if (onOpen) keys.Enter = [() => rows[current] && onOpen(rows[current]), "Open the row"];
  if (onSelect) keys.x = [() => rows[current] && onSelect(rows[current]), "Select the row"];
  useKeys(keys);
  if (rows.length === 0 && isAll && empty) return empty;
  const span = props.columns ? props.columns.length + (onSelect ? 1 : 0) : 99;
  const isLoading = rows.length === 0 && !error;
  return html`<${ScrollBox}>
    <table class=${props.columns ? "table fixed" : "table"}
      style=${props.columns ? {minWidth: leastWidth(props.columns, Boolean(onSelect))} : null} aria-label=${label} aria-busy=${isLoading} aria-rowcount=${isAll ? rows.length + 1 : -1}>
      ${props.columns && html`<${ListHead} columns=${props.columns} selects=${Boolean(onSelect)} />`}
      <tbody ref=${body}>
        <${Gap} height=${first * rowHeight} columns=${span} />
        ${rows.slice(first, last).map((row, i) => {
          const key = rowKey(row);
          return html`<${ListRow} key=${key} row=${row} index=${first + i} height=${rowHeight}
            isCurrent=${first + i === current} isSelected=${selected?.has(key)}
            columns=${props.columns} renderRow=${props.renderRow} onOpen=${onOpen}
            onSelect=${onSelect} />`;
        })}
        <${Gap} height=${(rows.length - last) * rowHeight} columns=${span} />
      </tbody>
    </table>
    <p class="list-foot" role="status">
      ${error
        ? html`<span class="problem">Not loaded: ${error.message}</span>
            <button class="small" onClick=${more}>Try again</button>`
        : isAll
          ? `${counted(rows.length, noun)}, all loaded`
          : `${counted(rows.length, noun)} loaded, more as you scroll…`}
    </p>
  <//>`;
}

/** The pages fetched so far. A reply that comes after a reset is thrown away. */
function usePages({fetchPage, resetKey, onRows}) {
  const fresh = {rows: [], next: null, isAll: false, error: null, isFetching: false};
  const [state, setState] = useState(fresh);
  const running = useRef(null);
  const latest = useRef(null);
  latest.current = {fetchPage, onRows};
  useEffect(() => {
    running.current?.abort();
    running.current = null;
    setState(fresh);
    return () => running.current?.abort();
  }, [resetKey]);
  const more = async () => {
    if (running.current) return;
    const stop = new AbortController();
    running.current = stop;
    setState((known) => ({...known, isFetching: true, error: null}));
    try {
      const page = await latest.current.fetchPage(state.next, stop.signal);
      if (stop.signal.aborted) return;
      running.current = null;
      const next = page.next ?? null;
      setState((known) => {
        const rows = [...known.rows, ...page.rows];
        latest.current.onRows?.(rows, next === null);
        return {rows, next, isAll: next === null, error: null, isFetching: false};
      });
    } catch (error) {
      if (stop.signal.aborted) return;
      running.current = null;
      setState((known) => ({...known, error, isFetching: false}));
    }
  };
  return {...state, more};
}

function ListHead({columns, selects}) {
  return html`<thead>
    <tr>
      ${selects && html`<th class="select"><span class="hidden">Selected</span></th>`}
      ${columns.map(
        (column) => html`<th key=${column.key} scope="col" class=${classOf(column)}
          style=${column.width ? {width: column.width} : null}>${column.label}</th>`,
      )}
    </tr>
  </thead>`;
}

function ListRow({row, index, height, isCurrent, isSelected, columns, renderRow, onOpen, onSelect}) {
  const open = (event) => {
    if (!onOpen || event.target.closest("a, button, input, label")) return;
    if (getSelection()?.toString()) return;
    onOpen(row);
  };
  const classes = [isCurrent && "current", isSelected && "chosen", onOpen && "opens"];
  return html`<tr
    class=${classes.filter(Boolean).join(" ")}
    style=${{height: `${height}px`}}
    aria-rowindex=${index + 2}
    aria-current=${isCurrent ? "true" : null}
    onClick=${open}
  >
    ${onSelect &&
    html`<td class="select">
      <input type="checkbox" aria-label="Select this row" checked=${Boolean(isSelected)}
        onChange=${() => onSelect(row)} />
    </td>`}
    ${renderRow
      ? renderRow(row, {index, isCurrent})
      : columns.map(
          (column) => html`<td key=${column.key} class=${classOf(column)}>
            ${column.render ? column.render(row) : row[column.key]}
          </td>`,
        )}
  </tr>`;
}

function classOf(column) {
  return [column.align === "end" && "end", column.hideOnPhone && "wide-only", column.className]
    .filter(Boolean)
    .join(" ");
}

// No wider than the table: in a fixed layout each further column would take its share.
function Gap({height, columns}) {
  if (height <= 0) return null;
  return html`<tr class="spacer" aria-hidden="true">
    <td colspan=${columns} style=${{height: `${height}px`}}></td>
  </tr>`;
}
