"""Shapes of transactional appends. See the package."""

from __future__ import annotations

from typing import Literal

import msgspec

from logqueue.shapes.values import Performance


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to staging a chunk.

    Attributes:
        status: `already` when this very chunk was staged, or its epoch committed, before.
        staged_bytes: What the producer has staged now, in all its epochs.
    """

    producer: str
    epoch: int
    status: Literal["staged", "already"]
    staged_bytes: int
    performance: Performance = {}


class CommittedRange(msgspec.Struct, frozen=True, kw_only=True):
    """The records that an epoch appended to one topic: `first_seq` to `last_seq`, inclusive."""

    topic: str
    first_seq: int
    last_seq: int
    count: int


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to committing an epoch.

    Attributes:
        status: `already` when the epoch was committed before.
        topics: What it appended; of epochs before the last one this is no longer known.
    """

    producer: str
    epoch: int
    status: Literal["committed", "already"]
    topics: list[CommittedRange]
    performance: Performance = {}


class Aborted(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to aborting an epoch.

    Attributes:
        status: `committed` when the epoch was committed before; then nothing is discarded.
        staged_bytes: What the producer still has staged, in later epochs.
    """

    producer: str
    epoch: int
    status: Literal["aborted", "committed"]
    staged_bytes: int
    performance: Performance = {}


class StagedEpochs(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a commit.

    Attributes:
        epochs: Ascending.
    """

    epochs: list[int]
    bytes: int


class Producer(msgspec.Struct, frozen=True, kw_only=True):
    """A producer of transactional appends.

    Attributes:
        last_epoch: The last one committed; None before the first.
    """

    producer: str
    last_epoch: int | None
    staged: StagedEpochs
    performance: Performance = {}
