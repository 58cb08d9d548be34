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
SEQS_PER_CALL_MAX = 1000
DIVERTED_PER_PASS_MAX = 1000
"""Dead letters one claim pass moves at most: a poisoned backlog must not stall the server."""

LEASE_MS_MIN = 100
LEASE_MS_MAX = 86_400_000
CLAIM_JITTER_MS_MAX = 5000
NACK_DELAY_MS_MAX = 86_400_000
PRIORITY_MAX = 1000

DIFF_RECORDS_DEFAULT = 256
DIFF_RECORDS_MAX = 1000
DIFF_WAIT_MS_MAX = 30_000
DIFF_BYTES_DEFAULT = 1 << 20
DIFF_BYTES_MAX = 8 << 20

SEQS_RESERVED_AHEAD = 4096
"""How far ahead of the head a `disk` topic's seqs are promised durably, so that a lost tail leaves
a hole and never hands the same seq out twice."""

DEAD_LETTER_BACKOFF_MS = 1000
"""How long a job whose dead-letter topic is full stays out of rotation."""

assert DIVERTED_PER_PASS_MAX <= RECORDS_PER_WRITE_MAX
assert LEASE_MS_MIN > 0


class Quotas(msgspec.Struct, frozen=True):
    """Server-wide caps that commands are refused by. 0 means unlimited."""

    topics_max: int = 100_000
    total_bytes_max: int = 0
