// States of jobs, and what can be done to jobs in them.

export const STATES = ["ready", "in_flight", "delayed", "held"];

export const STATE_NAMES = {ready: "Ready", in_flight: "In flight", delayed: "Delayed", held: "Held"};

const MARKS = {ready: "ok", in_flight: "info", delayed: "", held: "warn"};

/** The class of a state's mark. */
export function markOf(state) {
  return `mark ${MARKS[state] ?? ""}`;
}

/**
 * What can be done to many jobs: which states it is for, its words, and what becomes of a job.
 * @typedef {{label: string, key: string, states: string[], scope: string, doing: string, done: string,
 *   text: string, danger?: boolean, undone?: string}} Action
 * @type {Record<string, Action>}
 */
export const ACTIONS = {
  retry: {
    label: "Retry",
    key: "R",
    states: ["delayed", "held"],
    scope: "admin",
    doing: "Retrying",
    done: "retried",
    text: "can be claimed at once. Held jobs start over, with their deliveries at 0.",
  },
  delay: {
    label: "Delay",
    key: "D",
    states: ["ready", "delayed"],
    scope: "admin",
    doing: "Delaying",
    done: "delayed",
    text: "are not handed out before the time you choose.",
  },
  hold: {
    label: "Hold",
    key: "H",
    states: ["ready", "delayed"],
    scope: "admin",
    doing: "Holding",
    done: "held",
    text: "are not handed out until they are released. Their deliveries and delays end with the hold.",
  },
  release: {
    label: "Release",
    key: "L",
    states: ["held"],
    scope: "admin",
    doing: "Releasing",
    done: "released",
    text: "can be claimed again, with their deliveries at 0.",
  },
  prioritize: {
    label: "Prioritize",
    key: "P",
    states: ["ready", "delayed", "held"],
    scope: "admin",
    doing: "Prioritizing",
    done: "prioritized",
    text: "are handed out by the priority you choose, the highest first.",
  },
  return: {
    label: "Return",
    key: "B",
    states: ["in_flight"],
    scope: "admin",
    doing: "Returning",
    done: "returned",
    text: "go back to the queue at once: for workers that are gone. What they still send is ignored.",
  },
  cancel: {
    label: "Cancel",
    key: "C",
    states: ["ready", "delayed", "held", "in_flight"],
    scope: "delete",
    doing: "Cancelling",
    done: "cancelled",
    danger: true,
    text: "are removed. This cannot be undone.",
  },
};
