"""Faults that a log may have, each in a topic of its own, and what an audit must say of it."""

from __future__ import annotations

from collections.abc import Callable

from logqueue import events as ev
from logqueue.events import block as blocks
from logqueue.model.config import GroupOptions, TopicOptions
from tests.spark.crafted import CraftedLog, appended, archived_meta, dead_letter_meta

QUEUE = {"type": "queue", "durability": "fsync"}
Place = tuple[str, str, str | None, int | None, int | None]
"""Rule, severity, topic, first and last seq."""


def _gap(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, durability="fsync")
    log.append(topic, 1, 5)
    log.append(topic, 8, 3)


def _twice(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, durability="fsync")
    log.append(topic, 1, 5)
    log.append(topic, 4, 3)


def _back(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, durability="fsync")
    log.log(appended(log.at + 3_600_000, topic, 1, 70))
    log.log(appended(log.at + 3_599_500, topic, 71, 10))
    log.append(topic, 81, 2)


def _unknown_job(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE)
    log.append(topic, 1, 2)
    log.claim(topic, 1, 3, 4)


def _two_leases(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE)
    log.append(topic, 1, 100)
    log.claim(topic, *range(1, 101))
    log.claim(topic, 63, 64, 65, node="w2")


def _two_ends(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE)
    log.append(topic, 1, 3)
    log.claim(topic, 1, 2, 3)
    log.ack(topic, 1, 2)
    log.log(ev.RecordsFinished(log.at, topic, "cancelled", "", [2]))


def _too_often(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE, max_deliveries=1, on_exhausted="hold")
    log.append(topic, 1, 3)
    for _ in range(2):
        log.claim(topic, 2)
        log.log(ev.JobsReleased(log.at, topic, "w1", "nack", log.at, [2]))


def _paused(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE)
    log.append(topic, 1, 3)
    config = TopicOptions(**QUEUE, paused=True).resolved()  # type: ignore[arg-type]
    log.log(ev.TopicConfigured(log.at, topic, config))
    log.claim(topic, 3)


def _early(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE)
    log.append(topic, 1, 1)
    log.log(appended(log.at, topic, 2, 1, not_before=log.at + 5000))
    log.claim(topic, 1, 2)


def _past_the_floor(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE)
    log.append(topic, 1, 9)
    log.log(ev.RecordsTrimmed(log.at, topic, 0, 4, 0, 4))
    log.claim(topic, 4, 5)


def _dead_letters(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE, dead_letter=f"{name}.dead")
    log.topic(topic + 100, f"{name}.dead", durability="fsync")
    log.append(topic, 1, 9)
    copies = {1: [1], 2: [], 3: [3, 3], 4: [4, 9]}
    first = 1
    for seq, told in copies.items():
        removed = ev.RecordsRemoved(log.at, topic, [seq], 1)
        metas = [dead_letter_meta(name, source) for source in told]
        made = [appended(log.at, topic + 100, first, len(told), metas=metas)] if told else []
        log.log(*made, removed)
        first += len(told)


def _archived(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE, archive=f"{name}.done")
    log.topic(topic + 100, f"{name}.done", durability="fsync")
    log.append(topic, 1, 4)
    log.claim(topic, 1, 2, 3)
    metas = [archived_meta(name, 1), archived_meta(name, 4)]
    log.log(
        appended(log.at, topic + 100, 1, 2, metas=metas), ev.JobsAcked(log.at, topic, "w1", [1])
    )
    log.ack(topic, 2, 3)


def _redriven(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE)
    log.topic(topic + 100, f"{name}.dead", durability="fsync")
    log.append(topic + 100, 1, 2, metas=[{}, dead_letter_meta(name, 1)])
    for first in (1, 2):
        removed = ev.RecordsRemoved(log.at, topic + 100, [first], redriven=True)
        log.log(appended(log.at, topic, first, 1), removed)


def grouped(log: CraftedLog, topic: int, first: int, *groups: str) -> None:
    """Jobs in groups; "" for none."""
    data = [b"1" for _ in groups]
    texts = [data, *[None] * 4, [blocks.write_string(g) if g else b"" for g in groups]]
    block = blocks.pack(texts)
    log.log(ev.RecordsAppended(log.at, topic, first, len(groups), block, size=1))


def _group_out_of_order(log: CraftedLog, topic: int, name: str) -> None:
    log.topic(topic, name, **QUEUE, groups=GroupOptions("fifo"))
    grouped(log, topic, 1, "a", "b", "a")
    log.claim(topic, 2, 3)


FAULTS: list[tuple[Callable[[CraftedLog, int, str], None], list[tuple[str, str, int, int]]]] = [
    (_gap, [("seq_contiguous", "", 6, 7)]),
    (_twice, [("seq_unique", "", 4, 5)]),
    (_unknown_job, [("known_job", "", 3, 4)]),
    (_two_leases, [("one_lease", "", 63, 65)]),
    (_two_ends, [("one_end", "", 2, 2)]),
    (_too_often, [("deliveries_max", "", 2, 2)]),
    (_paused, [("claim_paused", "", 3, 3)]),
    (_early, [("claim_in_time", "", 2, 2)]),
    (_past_the_floor, [("claim_open_job", "", 4, 4)]),
    (
        _dead_letters,
        [("dead_letter_copy", "", seq, seq) for seq in (2, 3, 9)],
    ),
    (_archived, [("archive_copy", "", 2, 3), ("archive_copy", "", 4, 4)]),
    (_redriven, [("redrive_once", ".dead", 1, 1)]),
    (_group_out_of_order, [("group_order", "", 3, 3)]),
    # Last, as jobs that live through a set-back of the clock are given as much time.
    (_back, [("time_order", "", 81, 82)]),
]  # fmt: skip


def write_faults(log: CraftedLog) -> list[Place]:
    """Write them all; returns the findings that are due."""
    expected: list[Place] = []
    for topic, (write, found) in enumerate(FAULTS, 1):
        name = write.__name__.strip("_")
        write(log, topic, name)
        expected += [(rule, "error", name + of, a, b) for rule, of, a, b in found]
    return expected
