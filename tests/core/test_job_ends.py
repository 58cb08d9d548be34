"""Listeners learn of every end of a job, once, while its record is still there."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.core.job_ends import JobEnds
from logqueue.core.queue_topic import QueueTopic
from logqueue.events import block as blocks
from tests.core.test_lifecycle_states import GOES, STATES, VERBS
from tests.core.world import World, wish


class Recorder:
    """What was reported, per job."""

    def __init__(self, world: World) -> None:
        self.ends: list[tuple[int, str, str]] = []
        world.queue().queue.end_listeners = (self,)

    def jobs_ended(self, topic: QueueTopic, ends: JobEnds) -> None:
        """See EndListener."""
        for seq in ends.seqs:
            assert topic.holds(seq), "the record is still there"
            self.ends.append((seq, ends.outcome, ends.node))


@pytest.fixture
def world() -> World:
    world = World()
    world.put(durability="fsync", leases_durable=True, lease_ms=1000)
    return world


NAMES = {"delete": "deleted"}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", STATES)
def test_every_end_is_reported_once(world: World, state: str, verb: str) -> None:
    seen = Recorder(world)
    STATES[state][0](world)
    VERBS[verb](world)
    becomes = GOES[verb].get(state)
    world.topic("q")
    has_ended = becomes not in (None, "ready", "delayed", "in_flight", "held")
    node = "w" if verb in ("ack", "reject") else ""
    assert seen.ends == ([(1, NAMES.get(verb, becomes), node)] if has_ended else [])
    if has_ended:
        world.ack(1)
        assert len(seen.ends) == 1, "its holder settles a job that has ended"


@pytest.mark.parametrize("own", [0, 300])
@pytest.mark.parametrize(
    ("config", "outcome"),
    [
        ({"dead_letter": "letters"}, "dead_lettered"),
        ({"on_exhausted": "drop"}, "dropped"),
    ],
)
def test_ends_of_exhausted_jobs(
    world: World, config: dict[str, Any], outcome: str, own: int
) -> None:
    seen = Recorder(world)
    world.patch(max_deliveries=1, **config)
    world.write("q", "a", wish("b", ttl_ms=own), "c")
    assert world.take(2) == [1, 2]
    world.nack(1, 2)
    assert world.take(5) == [3]
    assert sorted(seen.ends) == [(1, outcome, ""), (2, outcome, "")]


def test_ends_by_caps_and_ttl(world: World) -> None:
    seen = Recorder(world)
    world.patch(cap_records=3)
    world.fill(2)
    world.fill(5)
    assert [seq for seq, _, _ in seen.ends] == [1, 2, 3, 4], "the front of the write itself, too"
    world.patch(cap_records=2)
    world.take(1)
    world.wait(2000)
    world.topic("q")
    assert [seq for seq, _, _ in seen.ends] == [1, 2, 3, 4, 5]
    assert {outcome for _, outcome, _ in seen.ends} == {"dropped"}
    world.patch(ttl_ms=100)
    world.wait(200)
    world.topic("q")
    assert seen.ends[5:] == [(6, "expired", ""), (7, "expired", "")]


def test_ends_of_superseded_redriven_and_deleted_jobs(world: World) -> None:
    seen = Recorder(world)
    world.write("q", wish("old", key="k"))
    world.take()
    world.write("q", wish("new", key="k"))
    world.nack(1)
    world.topic("q")
    assert seen.ends == [(1, "superseded", "")]
    world.patch(dead_letter="letters")
    world.put("letters")
    letters = Recorder(world)
    world.queue("letters").queue.end_listeners = (letters,)
    world.queue().queue.end_listeners = (seen,)
    world.take()
    world.reject(2)
    assert seen.ends[1:] == [(2, "dead_lettered", "w")]
    assert world.redrive().redriven == 1
    assert letters.ends == [(1, "redriven", "")]
    world.delete(before=9)
    assert seen.ends[2:] == [(3, "deleted", "")]


def test_an_ack_of_jobs_of_which_some_have_ended(world: World) -> None:
    seen = Recorder(world)
    world.fill(3)
    world.take(3)
    world.delete(before=3)
    world.ack(1, 2, 3)
    assert sorted(seen.ends) == [(1, "deleted", ""), (2, "deleted", ""), (3, "acked", "w")]


def test_ends_of_many_at_once_are_reported_in_bounded_parts(world: World) -> None:
    class Sizes:
        """How many jobs go at a time."""

        most = 0

        def jobs_ended(self, topic: QueueTopic, ends: JobEnds) -> None:
            """See EndListener."""
            self.most = max(self.most, len(ends.seqs))

    sizes = Sizes()
    world.queue().queue.end_listeners = (sizes,)
    block = blocks.pack([[b"1"] * 10_000, None, None, None])
    world.run(cmd.Append("q", block, 10_000))
    world.patch(ttl_ms=1)
    world.wait(10)
    world.topic("q")
    assert 0 < sizes.most <= 4000
