// A text field for JSON that says where it is wrong while it is typed.

import {html, useMemo, useRef} from "../vendor/htm-preact.js";
import {parseJson} from "../api.js";

/**
 * Check JSON text.
 * @param {string} text
 * @returns {{value: any, error: null}|{value: undefined, error: {message: string, line: number|null,
 *   column: number|null}}}
 */
export function checkJson(text) {
  try {
    return {value: parseJson(text), error: null};
  } catch (problem) {
    return {value: undefined, error: placed(text, String(problem.message))};
  }
}

function placed(text, message) {
  const said = /line (\d+) column (\d+)/.exec(message);
  const at = /at position (\d+)/.exec(message);
  const isEnd = /end of (JSON|data)|unterminated/i.test(message);
  const words = message
    .replace(/^JSON\.parse: /, "")
    .replace(/ in JSON at position.*$| at line \d+ column.*$|, ("|\.\.\.).*is not valid JSON$/s, "");
  if (said) return {message: words, line: Number(said[1]), column: Number(said[2])};
  const position = at ? Number(at[1]) : isEnd ? text.length : firstDifference(text);
  if (position === null) return {message: words, line: null, column: null};
  const before = text.slice(0, position).split("\n");
  return {message: words, line: before.length, column: before.at(-1).length + 1};
}

/** Where a message says nothing but the token: the place of its first occurrence, if only one. */
function firstDifference(text) {
  return text.trim() === "" ? 0 : null;
}

/**
 * @param {{value: string, onChange: (text: string, check: {value: any, error: any}) => void,
 *   label: string, rows?: number, autofocus?: boolean, hint?: any}} props
 */
export function JsonEditor({value, onChange, label, rows = 10, autofocus = false, hint}) {
  const area = useRef(null);
  const check = useMemo(() => checkJson(value), [value]);
  const change = (text) => onChange(text, checkJson(text));
  const format = () => change(JSON.stringify(check.value, null, 2));
  const goTo = () => {
    const lines = value.split("\n").slice(0, check.error.line - 1);
    const at = lines.reduce((sum, one) => sum + one.length + 1, 0) + check.error.column - 1;
    area.current.focus();
    area.current.setSelectionRange(at, Math.min(at + 1, value.length));
  };
  return html`<div class="json-editor field">
    <label
      ><span>${label}</span>
      <textarea
        ref=${area}
        class="code"
        rows=${rows}
        spellcheck=${false}
        autocomplete="off"
        autofocus=${autofocus}
        aria-invalid=${check.error ? "true" : null}
        value=${value}
        onInput=${(event) => change(event.target.value)}
      ></textarea>
    </label>
    <div class="json-check" role="status">
      ${check.error
        ? html`<span class="problem"><${Where} error=${check.error} goTo=${goTo} /> ${check.error.message}</span>`
        : html`<span class="fine">Valid JSON</span>
            <button type="button" class="small" onClick=${format}>Format</button>`}
      ${hint && html`<span class="soft">${hint}</span>`}
    </div>
  </div>`;
}

function Where({error, goTo}) {
  if (error.line === null) return "Not JSON:";
  return html`<button type="button" class="small" onClick=${goTo}>
    Line ${error.line}, column ${error.column}
  </button>`;
}
