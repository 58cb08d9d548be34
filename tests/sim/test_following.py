"""The state of a standby is the state of the writer at the same frame, and can always be read."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from logqueue.api.record_texts import RecordTexts
from logqueue.core.apply.elapse import elapse
from logqueue.core.invariants import check
from logqueue.core.job_views import list_jobs
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.segments.index import LogName
from logqueue.server.storage import compaction
from logqueue.server.storage.journal import Journal
from tests.core.following import LOGS, Follower
from tests.effort import scaled
from tests.portrait import portrait
from tests.sim.test_everything import Everything
from wal import Log

SEEDS = range(scaled(4, 60))
SOME_LOGS: tuple[tuple[LogName, ...], ...] = (("jobs",), ("leases",), LOGS)
UNLOGGED = ("kept", "brief", "router lasting")


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


def picture(state: State, now: int) -> dict[str, Any]:
    """What the logs say of a state."""
    for topic in state.instances.values():
        elapse(topic, now, jobs_max=None)
    facts = portrait(state, now)
    for name in UNLOGGED:
        facts.pop(name, None)
    for name, fact in facts.items():
        if isinstance(fact, tuple):
            facts[name] = {"batch": fact}
    for topic in facts.values():
        topic.pop("written_at", None)
        if "queue" in topic:
            # Of jobs whose record is gone; a writer remembers them until they are settled.
            topic["queue"].pop("orphans")
    return facts


def read_all(state: State) -> None:
    """What readers do."""
    for topic in state.topics.values():
        for batch in topic.batches:
            assert sum(1 for _ in batch.records()) == batch.live
        if isinstance(topic, QueueTopic):
            assert topic.ready >= 0
            list_jobs(topic, limit=1000)
    check(state)


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Assert it name by name."""
    assert found.keys() == wanted.keys()
    for name, facts in wanted.items():
        for fact, value in facts.items():
            assert found[name].get(fact) == value, f"{name}: {fact}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_has_the_state_of_the_writer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Everything(seed)
    rng = Random(seed)
    story.world.step()
    standby = Follower(story.world, rng)
    drop_before = Journal.drop_segments

    def staged(journal: Journal, log: Log, segment: int) -> None:
        standby.stage()
        drop_before(journal, log, segment)

    monkeypatch.setattr(Journal, "drop_segments", staged)
    for _ in range(60):
        for _ in range(rng.randrange(1, 6)):
            story.turn()
        if rng.random() < 0.5:
            standby.follow(rng.randrange(1, 9), rng.choice(SOME_LOGS))
            read_all(standby.state)
        if rng.random() < 0.1:
            # The next life of the writer; a kill takes what was not written.
            story.tidying = iter(())
            standby.stage()
            rng.choice((story.world.restart, story.world.kill))()
            story.texts = RecordTexts()
        if rng.random() < 0.2:
            story.world.step()
            standby.follow()
            standby.release()
            now = story.world.now
            assert_same(picture(standby.state, now), picture(story.world.state, now))
