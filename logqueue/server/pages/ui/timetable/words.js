// A schedule in words: when it fires, and how it is.

import {html} from "../vendor/htm-preact.js";
import {duration} from "../format.js";

/** @param {{schedule: {cron: string|null, every_ms: number|null, timezone: string}}} props */
export function When({schedule}) {
  const {cron, every_ms: every, timezone} = schedule;
  if (cron === null) return html`<span>every ${duration(every)}</span>`;
  return html`<span title=${`${cron}, in ${timezone}`}><code>${cron}</code> <span class="soft">${timezone}</span></span>`;
}

/** "failing", "paused" or "on". */
export function stateOf({paused, last_error: error}) {
  if (paused) return "paused";
  return error === null ? "on" : "failing";
}

const STATES = {
  on: ["ok", "On", "It fires at its times"],
  paused: ["", "Paused", "It does not fire until it is resumed"],
  failing: ["bad", "Failing", ""],
};

/** @param {{schedule: object}} props */
export function ScheduleState({schedule}) {
  const state = stateOf(schedule);
  const [kind, label, title] = STATES[state];
  return html`<span class=${`mark ${kind}`} title=${state === "failing" ? schedule.last_error.message : title}>${label}</span>`;
}

const FORMATS = new Map();

/** A time as clocks show it in a named zone: "Tue 2026-11-24 03:00 CET". */
export function inZone(ms, timezone) {
  let format = FORMATS.get(timezone);
  if (format === undefined) {
    format = zoneFormat(timezone) ?? zoneFormat("UTC");
    FORMATS.set(timezone, format);
  }
  const parts = Object.fromEntries(format.formatToParts(new Date(ms)).map(({type, value}) => [type, value]));
  return `${parts.weekday} ${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second} ${parts.timeZoneName}`;
}

function zoneFormat(timeZone) {
  try {
    return new Intl.DateTimeFormat("en-GB", {
      timeZone,
      weekday: "short",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      timeZoneName: "short",
    });
  } catch {
    // A zone that the server knows and this browser does not.
    return null;
  }
}
