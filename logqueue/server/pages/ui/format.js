// Numbers, sizes and times as people read them.

const WHOLE = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 12,345; a dash for what is not known. */
export function count(value) {
  return value === null || value === undefined ? "–" : WHOLE.format(value);
}

/** "1 job", "1,204 jobs". */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A rate per second: 0, 0.3, 12.5, 1,204, 13.2k. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10_000) return `${(value / 1000).toFixed(1)}k`;
  if (value >= 100) return WHOLE.format(value);
  return value === 0 ? "0" : value.toFixed(1);
}

/** 812 B, 4.0 KiB, 1.2 GiB. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${value} B` : `${value.toFixed(value < 100 ? 1 : 0)} ${SIZES[unit]}`;
}

/** 250 ms, 1.2 s, 42 s, 14 min, 3 h 12 min, 2 d 4 h. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms === 0) return "0 s";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${trimmed(Math.floor(ms / 100) / 10)} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 600) return joined(seconds, 60, "min", "s");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 1440) return joined(minutes, 60, "h", "min");
  return joined(Math.floor(minutes / 60), 24, "d", "h");
}

function joined(value, per, large, small) {
  const rest = value % per;
  const whole = `${WHOLE.format(Math.floor(value / per))} ${large}`;
  return rest === 0 ? whole : `${whole} ${rest} ${small}`;
}

function trimmed(value) {
  return Number.isInteger(value) ? value : value.toFixed(1);
}

/** "just now", "12 s ago", "in 3 min": the largest unit only. */
export function ago(ms, now) {
  const passed = now - ms;
  if (Math.abs(passed) < 2000) return "just now";
  return passed > 0 ? `${coarse(passed)} ago` : `in ${coarse(-passed)}`;
}

function coarse(ms) {
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return duration(Math.floor(seconds / 60) * 60_000);
  return `${WHOLE.format(Math.floor(seconds / 86_400))} d`;
}

const DAY = new Intl.DateTimeFormat("en-CA", {year: "numeric", month: "2-digit", day: "2-digit"});
const CLOCK = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const ZONE = new Intl.DateTimeFormat("en-GB", {timeZoneName: "short", hour: "2-digit"});

/** 2026-11-22 14:03:07.123 CET, in the viewer's zone. */
export function absolute(ms) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(ms);
  const fraction = String(date.getMilliseconds()).padStart(3, "0");
  const zone = ZONE.formatToParts(date).find((part) => part.type === "timeZoneName")?.value;
  return `${DAY.format(date)} ${CLOCK.format(date)}.${fraction} ${zone ?? ""}`.trim();
}

/** 14:03:07, in the viewer's zone. */
export function clock(ms) {
  return CLOCK.format(new Date(ms));
}
