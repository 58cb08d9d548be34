// The health of the server in words, with what to do.

import {html} from "../vendor/htm-preact.js";
import {counted} from "../format.js";

const DOTS = {ok: "ok", attention: "warn", bad: "bad"};
const MARKS = {bad: "Problem", warn: "Warning"};

/** @param {{health: object, error: object|null}} props error: of the last look */
export function Health({health, error}) {
  const {state, findings} = health;
  return html`<section class=${`card server-health ${state}`} aria-label="Health">
    <p class="verdict" role="status">
      <i class=${`dot ${error ? "" : DOTS[state] ?? ""}`} />
      <strong>${error ? "The server does not answer; the last state is shown." : verdict(state, findings)}</strong>
    </p>
    ${findings.length > 0 &&
    html`<ul>
      ${findings.map(
        (finding) => html`<li key=${finding.code + finding.text}>
          <span class=${`mark ${finding.severity}`}>${MARKS[finding.severity] ?? finding.severity}</span>
          <p>${finding.text} <span class="soft">${finding.advice}</span></p>
        </li>`,
      )}
    </ul>`}
  </section>`;
}

function verdict(state, findings) {
  if (state === "ok") return "The server is healthy.";
  const bad = findings.filter((finding) => finding.severity === "bad").length;
  const warnings = findings.length - bad;
  const parts = [bad > 0 && counted(bad, "problem"), warnings > 0 && counted(warnings, "warning")];
  const said = parts.filter(Boolean).join(" and ");
  return bad > 0 ? `Clients are affected: ${said}.` : `The server works, with ${said}.`;
}
