"""The rules about groups that go one job at a time: logs of the real core, and doctored ones."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from logqueue import events as ev
from logqueue.events import block as blocks
from logqueue.model.config import GroupOptions, TopicOptions
from tests.core.world import World, wish
from tests.effort import scaled
from tests.pipeline.audit_faults import QUEUE, grouped
from tests.pipeline.worlds import audited, spill
from tests.spark.crafted import CraftedLog

FIFO = {"mode": "fifo"}


def live(world: World, rng: Random, steps: int) -> None:
    """Whatever may happen to jobs in groups, with the mode switched now and then."""
    world.put("letters")
    world.put(
        "q", lease_ms=500, groups=FIFO, max_deliveries=3, dead_letter="letters",
        leases_durable=rng.random() < 0.5,
    )  # fmt: skip
    held: list[int] = []
    for _ in range(steps):
        does = rng.randrange(15)
        if does < 4:
            more: dict[str, Any] = {}
            if rng.random() < 0.2:
                more = {"key": rng.choice("kl"), "on_conflict": "replace"}
            if rng.random() < 0.2:
                more["delay_ms"] = 300
            if rng.random() < 0.1:
                more["ttl_ms"] = 700
            group = rng.choice(["a", "b", "c", None])
            world.write("q", *[wish(n, group=group, **more) for n in range(rng.choice((1, 1, 3)))])
        elif does < 8:
            held += world.take(rng.choice((1, 2, 10)), node="w")
        elif does < 10 and held:
            world.ack(*{held.pop(rng.randrange(len(held))) for _ in held[:2]})
        elif does == 10 and held:
            world.nack(held.pop(), delay_ms=rng.choice((0, 400)))
        elif does == 11:
            groups = rng.choice([FIFO, FIFO, FIFO, {"mode": "fair"}, None])
            world.patch(groups=groups, cap_records=rng.choice([0, 0, 6]))
        elif does == 12:
            getattr(world, rng.choice(("restart", "kill", "tidy")))()
        elif does == 13 and held:
            world.reject(held.pop())
        else:
            world.wait(rng.choice((1, 100, 600)))


@pytest.mark.parametrize("seed", range(scaled(6, 60)))
def test_logs_of_the_core_are_clean(tmp_path: Path, seed: int) -> None:
    world = World()
    live(world, Random(seed), 250)
    assert [f for f in audited(spill(world, tmp_path)) if f["severity"] != "info"] == []


def configured(log: CraftedLog, topic: int, mode: Any) -> None:
    groups = None if mode is None else GroupOptions(mode)
    config = TopicOptions(**QUEUE, groups=groups).resolved()  # type: ignore[arg-type]
    log.log(ev.TopicConfigured(log.at, topic, config))


def regrouped(log: CraftedLog, topic: int, seq: int, group: str) -> None:
    texts = [[b"1"], *[None] * 4, [blocks.write_string(group)]]
    block = blocks.pack(texts, seqs=[seq], ts=[log.at])
    log.log(ev.RecordsReplaced(log.at, topic, [block], None, [(seq, 1)], seq))


def test_what_breaks_the_order_of_a_group_is_found(tmp_path: Path) -> None:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "order", **QUEUE, groups=GroupOptions("fifo"))
        grouped(log, 1, 1, "a", "a", "", "b", "a")
        log.claim(1, 3, 4)
        log.claim(1, 2)  # before 1
        log.ack(1, 2)
        log.claim(1, 1)
        log.ack(1, 1)
        log.claim(1, 5)
        log.topic(2, "flight", **QUEUE, groups=GroupOptions("fifo"))
        grouped(log, 2, 1, "a", "a")
        log.claim(2, 2)
        log.claim(2, 1)  # 2 is under a lease
        log.topic(3, "later", **QUEUE)
        grouped(log, 3, 1, "a", "a", "a")
        log.claim(3, 3)
        configured(log, 3, "fifo")
        log.claim(3, 2)
        configured(log, 3, "fair")
        log.claim(3, 1)
        log.topic(4, "moved", **QUEUE, groups=GroupOptions("fifo"))
        grouped(log, 4, 1, "a", "b", "", "c")
        log.claim(4, 2)
        regrouped(log, 4, 1, "b")
        log.log(ev.JobsReleased(log.at, 4, "w1", "nack", log.at, [2]))
        log.claim(4, 2)  # 1 is in its group by now
        regrouped(log, 4, 3, "c")
        log.claim(4, 4)
    found = [(f["rule"], f["severity"], f["topic"], f["first_seq"]) for f in audited(tmp_path)]
    assert found == [
        ("group_in_flight", "error", "flight", 1),
        ("group_order", "error", "flight", 2),
        ("group_order", "error", "later", 2),
        ("group_order", "error", "moved", 2),
        ("group_order", "error", "moved", 4),
        ("group_order", "error", "order", 2),
    ]
