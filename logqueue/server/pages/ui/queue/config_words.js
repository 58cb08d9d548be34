// What a config means, in sentences.

import {count, counted, duration, size} from "../format.js";

const WEIGHTS_SHOWN = 5;

/**
 * @param {object} shown the config as the API shows it
 * @returns {[string, string][]} a subject and a sentence for each
 */
export function configInWords(shown) {
  const config = {...shown, dead_letter: named(shown.dead_letter), archive: named(shown.archive)};
  const found = [
    ["Leases", leases(config)],
    ["Failures", failures(config)],
    ["Retries", retries(config.retry_backoff)],
    ["Limits", limits(config)],
    ["Priorities", priorities(config)],
    ["Groups", groups(config.groups)],
    ["Results", results(config.results)],
    ["Lifetime", lifetime(config)],
    ["Durability", durability(config)],
    ["Finished jobs", archive(config)],
  ];
  return found.filter(([, sentence]) => sentence);
}

/** A name that the key may not see is not shown as one. */
function named(topic) {
  return topic === "<hidden>" ? "a topic that this key may not see" : topic;
}

function leases({lease_ms: lease, leases_durable: durable, claim_jitter_ms: jitter}) {
  const parts = [`A claimed job returns to the queue unless it is acked or extended within ${duration(lease)}.`];
  if (durable) parts.push("Leases survive a restart of the server.");
  if (jitter > 0) parts.push(`Claims are collected for ${duration(jitter)} and served together.`);
  return parts.join(" ");
}

function failures({max_deliveries: most, dead_letter: dead, on_exhausted: then, on_expire: onExpire}) {
  const parts = [];
  if (most === 0) parts.push("A job is delivered again until it is acked, however often it fails.");
  else parts.push(`After ${counted(most, "delivery", "deliveries")} a job ${exhausted(then, dead)}.`);
  if (onExpire === "dead_letter") parts.push(`A job that gets too old goes to ${dead}.`);
  return parts.join(" ");
}

function exhausted(then, dead) {
  if (then === "hold") return "is held until an operator releases it";
  if (then === "drop") return "is dropped";
  if (dead) return `goes to ${dead}`;
  return "is delivered again nevertheless, because there is no dead-letter topic";
}

function retries(backoff) {
  if (!backoff) return "A failed job is ready again at once.";
  const {kind, base_ms: base, step_ms: step, factor, max_ms: most, jitter} = backoff;
  const random = jitter > 0 ? `, up to ${Math.round(jitter * 100)} % less at random` : "";
  if (kind === "constant") return `A failed job waits ${duration(base)}${random}.`;
  const grows = kind === "linear" ? `${duration(step)} more each time` : `${factor} times as long each time`;
  return `A failed job waits ${duration(base)}, then ${grows}, ${duration(most)} at most${random}.`;
}

function limits({max_in_flight: most, claim_rate: claimRate}) {
  const parts = [];
  if (most > 0) parts.push(`At most ${counted(most, "job")} in flight.`);
  if (claimRate) {
    const burst = claimRate.burst ? `, ${count(claimRate.burst)} at once` : "";
    parts.push(`At most ${count(claimRate.per_s)} jobs per second are claimed${burst}.`);
  }
  return parts.join(" ") || "Claims are not limited.";
}

function priorities({priority_ageing_ms: step}) {
  return step > 0 ? `A job that waits is one level of priority higher after each ${duration(step)}.` : "";
}

function groups(config) {
  if (!config) return "";
  const {mode, weights, max_in_flight_per_group: most, rate_per_group: claimRate} = config;
  const heavy = Object.entries(weights ?? {});
  const parts = [
    mode === "fifo"
      ? "One job of a group at a time, in the order in which they were written."
      : "Groups take turns, one job each.",
  ];
  if (heavy.length > 0) {
    const listed = heavy.slice(0, WEIGHTS_SHOWN).map(([group, weight]) => `${group} gives ${count(weight)}`);
    const rest = heavy.length > WEIGHTS_SHOWN ? `, and so on for ${counted(heavy.length - WEIGHTS_SHOWN, "other")}` : "";
    parts.push(`In its turn ${listed.join(", ")}${rest}.`);
  }
  if (most > 0 && mode !== "fifo") parts.push(`At most ${counted(most, "job")} of a group in flight.`);
  if (claimRate) {
    const burst = claimRate.burst ? `, ${count(claimRate.burst)} at once` : "";
    parts.push(`At most ${count(claimRate.per_s)} jobs of a group per second are claimed${burst}.`);
  }
  return parts.join(" ");
}

function results(config) {
  if (!config) return "";
  const {keep_ms: keep, max_bytes: bytes} = config;
  return `What became of a job is kept for ${duration(keep)}, up to ${size(bytes)} in all.`;
}

function lifetime({ttl_ms: ttl, cap_records: records, cap_bytes: bytes, discard}) {
  const parts = [];
  if (ttl > 0) parts.push(`Records older than ${duration(ttl)} are removed.`);
  const caps = [records > 0 && counted(records, "record"), bytes > 0 && size(bytes)].filter(Boolean);
  if (caps.length > 0) {
    const full = discard === "reject" ? "then writes are refused" : "then the oldest are removed";
    parts.push(`At most ${caps.join(" or ")}; ${full}.`);
  }
  return parts.join(" ") || "Records stay until they are acked or deleted.";
}

const DURABILITIES = {
  ephemeral: "In memory only: everything is lost when the server stops.",
  memory: "A reply waits for the operating system. Power loss may lose the latest writes.",
  disk: "A reply waits for the operating system. Power loss may lose the latest writes, never their order.",
  fsync: "A reply waits for the disk: what was acknowledged survives power loss.",
};

function durability({durability: name}) {
  return DURABILITIES[name] ? `${name}: ${DURABILITIES[name]}` : name;
}

function archive({archive: name}) {
  return name ? `A copy of every finished job goes to ${name}.` : "";
}
