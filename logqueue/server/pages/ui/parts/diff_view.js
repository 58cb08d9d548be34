// The difference of two texts, line by line.

import {html, useMemo} from "../vendor/htm-preact.js";
import {counted} from "../format.js";

const CELLS_MAX = 4_000_000;
const CONTEXT = 3;

/** @param {{before: string, after: string, label?: string}} props */
export function DiffView({before, after, label = "Difference"}) {
  const lines = useMemo(() => folded(diffLines(before, after)), [before, after]);
  if (before === after) return html`<p class="soft">No difference.</p>`;
  return html`<table class="diff" aria-label=${label}>
    <tbody>
      ${lines.map((line, i) =>
        line.kind === "skip"
          ? html`<tr key=${i} class="skip"><td></td><td>${counted(line.count, "line")} unchanged</td></tr>`
          : html`<tr key=${i} class=${line.kind}>
              <td class="sign">
                <span aria-hidden="true">${SIGNS[line.kind]}</span><span class="hidden">${line.kind}</span>
              </td>
              <td><pre>${line.text}</pre></td>
            </tr>`,
      )}
    </tbody>
  </table>`;
}

const SIGNS = {same: " ", removed: "−", added: "+"};

/**
 * The lines of both texts in order: {kind: "same"|"removed"|"added", text}.
 * @param {string} before
 * @param {string} after
 */
export function diffLines(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const middle = changed(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const kept = (lines) => lines.map((text) => ({kind: "same", text}));
  return [...kept(a.slice(0, start)), ...middle, ...kept(end ? a.slice(-end) : [])];
}

function changed(a, b) {
  const all = (kind, lines) => lines.map((text) => ({kind, text}));
  if (a.length * b.length > CELLS_MAX) return [...all("removed", a), ...all("added", b)];
  // Lengths of the longest common parts of what follows.
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const at = i * width + j;
      longest[at] = a[i] === b[j] ? longest[at + width + 1] + 1 : Math.max(longest[at + width], longest[at + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const isSame = i < a.length && j < b.length && a[i] === b[j];
    const at = i * width + j;
    if (isSame) lines.push({kind: "same", text: a[i]});
    const takesA = isSame || j === b.length || (i < a.length && longest[at + width] >= longest[at + 1]);
    if (!isSame) lines.push(takesA ? {kind: "removed", text: a[i]} : {kind: "added", text: b[j]});
    if (takesA) i += 1;
    if (isSame || !takesA) j += 1;
  }
  return lines;
}

/** Long runs of unchanged lines are left out. */
function folded(lines) {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, i) => {
    if (line.kind === "same") return;
    near.fill(1, Math.max(0, i - CONTEXT), Math.min(lines.length, i + CONTEXT + 1));
  });
  const shown = [];
  lines.forEach((line, i) => {
    if (near[i]) shown.push(line);
    else if (shown.at(-1)?.kind === "skip") shown.at(-1).count += 1;
    else shown.push({kind: "skip", count: 1});
  });
  return shown;
}
