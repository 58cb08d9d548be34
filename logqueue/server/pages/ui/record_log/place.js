// What a person types to jump somewhere: a seq, or a time.

import {now} from "../clock.js";

const UNITS = {s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000};
const CLOCK = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?$/;
const DAY = /^(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?)?(Z)?$/;

/**
 * @param {string} text "1204", "10m" (that long ago), "14:03", "14:03:07", "2026-11-22 14:03"
 * @returns {{seq: number}|{ts: number}|null} null when it is neither
 */
export function readPlace(text) {
  const word = text.trim().replaceAll(",", "");
  if (/^\d{1,15}$/.test(word)) return {seq: Number(word)};
  const passed = /^(\d+(?:\.\d+)?)\s*([smhd])(?: ago)?$/.exec(word);
  if (passed) return {ts: Math.round(now() - Number(passed[1]) * UNITS[passed[2]])};
  const clock = CLOCK.exec(word);
  if (clock) {
    const at = new Date(now());
    at.setHours(Number(clock[1]), Number(clock[2]), Number(clock[3] ?? 0), millis(clock[4]));
    // A time that is still to come today was meant for yesterday.
    return {ts: at.getTime() > now() ? at.getTime() - UNITS.d : at.getTime()};
  }
  const day = DAY.exec(word);
  if (!day) return null;
  const [year, month, date, hour, minute, second] = day.slice(1, 7).map((part) => Number(part ?? 0));
  const parts = [year, month - 1, date, hour, minute, second, millis(day[7])];
  return {ts: day[8] ? Date.UTC(...parts) : new Date(...parts).getTime()};
}

function millis(digits = "0") {
  return Number(digits.padEnd(3, "0"));
}
