"""What checkpoints keep of the state: everything that no live record says.

Owns: the structs that checkpoint events are made of; fields are only ever added at the end, with a
default. Must not know: events, how the state is stored.
"""

from __future__ import annotations

import msgspec

from logqueue.model.config import RouterOptions, TopicOptions
from logqueue.model.job_batch import BatchCallback
from logqueue.model.schedule import FiringResult, ScheduleOptions


class TopicSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint keeps of a topic: everything that no live record says. `finished` counts
    jobs by outcome."""

    topic: int
    name: str
    config: TopicOptions
    head: int
    seqs_reserved: int
    cap_floor: int
    ttl_floor: int
    last_write_at: int
    dead_lettered: int
    holes: list[tuple[int, int]] = []
    finished: dict[str, int] = {}


class RouterSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint keeps of a router."""

    router: int
    name: str
    source: int
    dest: int
    cursor: int
    forwarded: int
    options: RouterOptions


class ProducerSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint keeps of a producer. `epoch` -1: none was committed."""

    name: str
    touched_at: int
    epoch: int
    digest: bytes
    ranges: list[tuple[str, int, int]]


class ScheduleSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint keeps of a schedule. Times are 0 for none."""

    name: str
    options: ScheduleOptions
    paused: bool
    created_at: int
    next_at: int
    fired: int
    skipped: int
    missed: int
    last_scheduled_for: int
    last_fired_at: int
    last_seq: int
    last_result: FiringResult | None = None


class BatchSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint keeps of a batch of jobs. Times are 0 for none."""

    name: str
    created_at: int
    closed_at: int
    ended_at: int
    joined: int
    done: int
    on_done: BatchCallback | None = None
    on_problem: BatchCallback | None = None


class JobSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What a leases checkpoint keeps of a job. `lease` 0: not leased; `ready_at` 0: no delay;
    `given_back`: deliveries that do not count; `progress`, `note`: what its worker said of it."""

    seq: int
    deliveries: int
    lease: int
    deadline: int
    stream: int
    ready_at: int
    node: str
    error: str | None = None
    given_back: int = 0
    progress: float | None = None
    note: str | None = None
