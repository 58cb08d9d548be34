// A text field for JSON that says where it is wrong while it is typed.

import {html, useMemo, useRef} from "../vendor/htm-preact.js";
import {parseJson, roundedNumber} from "../api.js";
import {problemOf} from "./json_place.js";

/**
 * Check JSON text.
 * @param {string} text
 * @returns {{value: any, error: null}|{value: undefined, error: {message: string, line: number|null,
 *   column: number|null}}}
 */
export function checkJson(text) {
  try {
    const value = parseJson(text);
    const rounded = roundedNumber(text);
    if (rounded === null) return {value, error: null};
    const message = `this browser would change the number ${rounded}: a newer one keeps all digits`;
    return {value: undefined, error: {message, line: null, column: null}};
  } catch (problem) {
    return {value: undefined, error: placed(text, String(problem.message))};
  }
}

function placed(text, message) {
  const found = problemOf(text);
  if (found === null) return {message, line: null, column: null};
  const before = text.slice(0, found.at).split("\n");
  return {message: found.message, line: before.length, column: before.at(-1).length + 1};
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
