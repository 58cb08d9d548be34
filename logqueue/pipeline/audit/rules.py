"""The rules that need every record and job event: what they are called and what must hold.

Owns: names and statements of rules, how a job may end. Must not know: which engine checks them, and
how. Rules that are checked without an engine are in the modules that check them.
"""

from __future__ import annotations

from typing import Final, get_args

from logqueue import events as ev
from logqueue.pipeline.audit.findings import Rule

SKEW_MS: Final = 1000
"""How far the times of a topic may go backwards: clocks are set now and then."""

RECORD_RULES: Final = (
    Rule("seq_contiguous", "the seqs of a topic have no gaps except those the log accounts for"),
    Rule("seq_unique", "no two records of a topic have the same seq"),
    Rule("time_order", f"times in a topic do not go back by more than {SKEW_MS} ms"),
    Rule("same_records", "both places that are compared hold the same records"),
)

JOB_RULES: Final = (Rule("known_job", "every job that was claimed or ended had been appended"),)

CLAIM_OPEN, ONE_LEASE, WITH_LEASE, BY_HOLDER, ONE_END, DELIVERIES, IN_TIME, HELD, PAUSED = range(9)
LEASE_RULES: Final = (
    Rule("claim_open_job", "no job is claimed after its end"),
    Rule("one_lease", "a job is leased to one worker at a time"),
    Rule("settle_with_lease", "only jobs under a lease are acked, released, extended or rejected"),
    Rule("settle_by_holder", "a job is settled by the worker that holds it"),
    Rule("one_end", "a job ends once, and nothing happens to it afterwards"),
    Rule("deliveries_max", "no job is delivered more often than max_deliveries"),
    Rule("claim_in_time", "no job is claimed before its delay is over"),
    Rule("claim_held", "no job is claimed while it is held"),
    Rule("claim_paused", "no job is claimed while its queue is paused"),
)
LEASE_DETAILS: Final = (
    "claimed after the job had ended",
    "claimed while another lease lasted",
    "settled although the job was under no lease",
    "settled by a worker that did not hold the job",
    "something happened to the job after its end",
    "delivered more often than max_deliveries allows",
    "claimed before the delay was over",
    "claimed while the job was held",
    "claimed while the queue was paused",
)
SOFT_RULES: Final = frozenset({WITH_LEASE, BY_HOLDER})
"""Rules that lost claims make look broken."""

COPY_RULES: Final = (
    Rule("dead_letter_copy", "each dead-lettered job has one copy, which points back to it"),
    Rule("archive_copy", "each finished job has one copy where its queue has an archive"),
    Rule("redrive_once", "only dead letters are redriven, each of them once"),
)

ENDS: Final[tuple[str, ...]] = get_args(ev.JobEndKind)
ARCHIVED: Final = tuple(end for end in ENDS if end not in ("dead_lettered", "redriven"))
STATES: Final = (*ENDS, "trimmed", "open")
"""What a job is at the end of the range, each in one of them."""
