"""Every bound that the core and the wire share, each with a name.

Owns: numbers only. Values are part of the public contract (docs/protocol.md, "Limits").
"""

from __future__ import annotations

import msgspec

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

RECORDS_PER_WRITE_MAX = 10_000
RECORD_BYTES_MAX = 1 << 20
META_BYTES_MAX = 16 << 10
META_KEYS_MAX = 64
TAG_BYTES_MAX = 256
NODE_BYTES_MAX = 128
KEY_BYTES_MAX = 256
NAME_BYTES_MAX = 255

CLAIM_JOBS_MAX = 1000
CLAIM_BYTES_MAX = 4 << 20
"""Bytes of data and meta that one pass hands out; one job is always handed out."""
CLAIMED_PER_PASS_MAX = 5000
"""Jobs that one pass hands out to all claimers together; the rest is for the next pass."""
SEQS_PER_CALL_MAX = 1000
DIVERTED_PER_PASS_MAX = 500
"""Dead letters one claim pass moves at most: a poisoned backlog must not stall the server."""

RECLAIMED_SCANNED_MAX = 5000
"""Jobs on their way back that one pass looks at: those that are to end are passed over."""

FRESH_SCANNED_MAX = 2000
"""The same of jobs that were never handed out. The next pass continues behind them."""

READY_SCANNED_MAX = 1000
"""Jobs at which a look for the oldest claimable job stops: all of them are to end."""

LEASE_MS_MIN = 100
LEASE_MS_MAX = 86_400_000
CLAIM_JITTER_MS_MAX = 5000
CLAIM_WAIT_MS_MAX = 30_000
NACK_DELAY_MS_MAX = 86_400_000
ERROR_BYTES_MAX = 4 << 10
RESULT_BYTES_MAX = 64 << 10
"""The result of one job."""
RESULTS_KEEP_MS_MAX = 30 * 86_400_000
RESULTS_BYTES_MAX = 1 << 30
"""What a queue may keep of ended jobs."""
NOTE_BYTES_MAX = 256
JOB_WAIT_MS_MAX = 30_000
"""How long a call may wait for the end of jobs."""
STATUS_BYTES_MAX = 4 << 20
"""Bytes of results after which a reply about many jobs ends; one job is always shown."""
DELAY_MS_MAX = 366 * 86_400_000
"""How far ahead a record may be delayed: a year, leap years included."""
JOB_KEY_BYTES_MAX = 256
PRIORITY_MAX = 1000
"""Of topics, where it is advice."""
JOB_PRIORITY_MAX = 9
GROUP_BYTES_MAX = 128
GROUP_WEIGHT_MAX = 1000
GROUPS_LISTED_DEFAULT = 20
GROUPS_LISTED_MAX = 1000
GROUPS_SCANNED_MAX = 200_000
"""Groups that one list of them examines."""
GROUP_WEIGHTS_MAX = 10_000
"""Groups of a queue that have a weight of their own."""

FOLLOW_UP_TOPICS_MAX = 32
"""Topics that one ack writes to."""
FOLLOW_UP_RECORDS_MAX = 1000
"""Records that one ack writes, to all topics together."""
BATCH_KEPT_MS = 86_400_000
"""How long a batch that has ended is remembered."""
BATCHES_PER_PASS_MAX = 500
"""Batches that one step forgets."""
CALLBACK_BYTES_MAX = 16 << 10
"""Data and meta of the callback of a batch, which stays in memory."""

STEPS_MAX = 32
"""Steps that follow one job."""
FOLLOW_BYTES_MAX = 64 << 10
"""Compact JSON of all that follows one job."""

DIFF_RECORDS_DEFAULT = 256
DIFF_RECORDS_MAX = 1000
DIFF_WAIT_MS_MAX = 30_000
DIFF_BYTES_DEFAULT = 1 << 20
DIFF_BYTES_MAX = 8 << 20

ROUTER_HOPS_MAX = 8
"""Copies of copies: a record that has come this far is not copied on, which ends every loop."""

FORWARDED_PER_PASS_MAX = 1024
"""Records a router copies in one decision, unless one whole batch is larger."""

WATCHED_TOPICS_MAX = 256
WATCH_BYTES_DEFAULT = 256 << 10
HEARTBEAT_MS_DEFAULT = 15_000
HEARTBEAT_MS_MIN = 1000
HEARTBEAT_MS_MAX = 60_000
WATCH_SESSION_TTL_MS = 300_000

STAGED_BYTES_MAX = 2 << 30
"""What all producers together may have staged."""
STAGED_CHUNKS_MAX = 100_000
"""Chunks that all producers together may have staged; each costs memory beside its records."""

STAGED_MS_MAX = 3_600_000
"""How long a producer's staged chunks wait for more of them, or for their commit."""

PRODUCER_IDLE_MS_MAX = 30 * 86_400_000
"""How long the last epoch of a producer that is silent is remembered."""

CHUNKS_PER_EPOCH_MAX = 100_000


JOBS_LISTED_DEFAULT = 100
JOBS_LISTED_MAX = 1000
JOBS_LISTED_BYTES_MAX = 4 << 20
"""Bytes of data and meta after which a page of a job listing ends; one job is always listed."""
JOBS_SCANNED_MAX = 200_000
"""Records one page of a job listing looks at."""
SEQS_PER_CHANGE_MAX = 10_000
"""Jobs that one change names by their seqs."""
JOBS_SEARCHED_BYTES_MAX = 64 << 20
"""Bytes in which one page of a job listing looks for a text."""
SEARCH_TEXT_CHARS_MAX = 1 << 10

REDRIVE_DEFAULT = 1000
REDRIVE_MAX = 10_000

FINISHED_PER_PASS_MAX = 4000
"""Records that one transaction removes at most by expiry, purge, delete or a tightened cap. All
numbers here that end in PER_PASS are chosen so that one step of the event loop takes a few ms."""
INDEXED_PER_PASS_MAX = 400
"""The same where records have keys, delays or times to live of their own, which cost more."""
ENDED_PER_PASS_MAX = 1000
"""The same of a queue that keeps what became of its jobs."""
FINISHED_BYTES_MAX = 64 << 20
"""Bytes of records that one such transaction removes; giving memory back takes time, too."""
LAPSED_PER_PASS_MAX = 1000
"""Leases that run out, and delays that end, in one step; the rest follows in the next ones."""
COPIED_PER_PASS_MAX = 500
"""Records that one such transaction copies at most to an archive, a dead-letter topic or back."""
COPIED_BYTES_MAX = 2 << 20
"""Bytes of records that one such transaction copies before it leaves the rest to the next; also
what keeps its frame far below what the log takes."""
RESTAGED_BYTES_MAX = 4 << 20
"""Bytes of staged chunks that one transaction logs again."""
SCANNED_PER_PASS_MAX = 2000
"""Records that one step looks at, to find those that a call means."""
CHANGED_PER_PASS_MAX = 500
"""Jobs that one step delays, holds, releases or returns."""
FILTERED_PER_PASS_MAX = 1000
"""Jobs that one step holds against a filter."""
SEARCHED_BYTES_PER_PASS_MAX = 1 << 20
"""Bytes in which one step looks for a text."""

NODES_PER_FILTER_MAX = 1000
"""Nodes that a reader may leave out."""

NODES_NOTED_MAX = 1000
"""Workers of a queue that are remembered for what they let run out."""

BACKOFF_MS_MAX = 86_400_000
RATE_PER_S_MAX = 1_000_000

SEQS_RESERVED_MIN = 256
SEQS_RESERVED_MAX = 4096
"""How far ahead of the head a `disk` topic's seqs are promised durably, so that a lost tail leaves
a hole and never hands the same seq out twice: four times the write that needs it, within these."""

DEAD_LETTER_BACKOFF_MS = 1000
"""How long a job whose dead-letter topic is full stays out of rotation."""

assert DIVERTED_PER_PASS_MAX <= RECORDS_PER_WRITE_MAX
assert LEASE_MS_MIN > 0


SCHEDULE_RECORD_BYTES_MAX = 64 << 10
"""Data and meta of the record of a schedule, which stays in memory."""
EVERY_MS_MIN = 1000
EVERY_MS_MAX = DELAY_MS_MAX
SCHEDULE_JITTER_MS_MAX = 86_400_000
FIRINGS_SHOWN_DEFAULT = 5
FIRINGS_SHOWN_MAX = 50
"""Times of next firings that one reply shows."""


class Quotas(msgspec.Struct, frozen=True):
    """What the operator allows, server-wide. 0 means unlimited.

    Attributes:
        auto_create: Whether a write that says nothing about it creates its topic.
    """

    topics_max: int = 100_000
    total_bytes_max: int = 0
    routers_max: int = 10_000
    auto_create: bool = True
    producers_max: int = 10_000
    schedules_max: int = 100_000
    batches_max: int = 10_000


GIVEN_BACK_MAX = 10
"""How often the end of a work stream gives a delivery of one job back. From then on each counts, so
that a job which kills every worker before its first call is still dead-lettered."""
