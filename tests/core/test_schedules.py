"""Schedules: against the naive model, and through crashes, clock steps and refusals."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.core.schedules import ScheduleState
from logqueue.errors import NotAQueue, ScheduleNotFound, Throttled, TopicNotFound
from logqueue.model.limits import Quotas
from logqueue.model.schedule import ScheduleOptions
from logqueue.server.storage import compaction
from tests.clock import ManualClock
from tests.core.schedule_model import Firing, ModelSchedule, ScheduleModel
from tests.core.world import World, wish
from tests.effort import scaled
from tests.portrait import portrait
from wal.testing.simfs import SimFileSystem

MINUTE = 60_000
HOUR = 60 * MINUTE
CRON = {"*/7 * * * *": 7, "5 * * * *": 60, "*/20 * * * *": 20}
"""Cron texts with the minutes between two firings, which begin at that of the text."""


def fired_into(world: World, topic: str = "q") -> list[Firing]:
    """Schedule and time of each job there."""
    return [(meta["schedule"], meta["scheduled_for"]) for meta in world.meta(topic)]


def of(world: World, name: str = "s") -> ScheduleState:
    return world.state.schedules.named(name)


def is_time(cron: str, every_ms: int, start: int) -> Any:
    if every_ms:
        return lambda at: at > start and (at - start) % every_ms == 0
    if cron == "5 * * * *":
        return lambda at: at // MINUTE % 60 == 5 and at % MINUTE == 0
    return lambda at: at // MINUTE % 60 % CRON[cron] == 0 and at % MINUTE == 0


NAMES = st.sampled_from(["a", "b", "c"])
TOPICS = st.sampled_from(["q", "r"])


class ScheduleMachine(RuleBasedStateMachine):
    """The same done to a server's core and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(clock=ManualClock())
        self.model = ScheduleModel()
        self.put_topic("q")
        self.saved = copy.deepcopy(self.model)

    def save(self) -> None:
        self.world.step()
        self.saved = copy.deepcopy(self.model)

    @rule(topic=TOPICS)
    def put_topic(self, topic: str) -> None:
        self.world.put(topic)
        self.model.topics.setdefault(topic, [])
        self.save()

    @rule(topic=TOPICS)
    def drop_topic(self, topic: str) -> None:
        self.world.drop(topic)
        self.model.topics.pop(topic, None)
        self.save()

    @precondition(lambda self: self.model.topics)
    @rule(
        name=NAMES,
        times=st.sampled_from([*((text, 0) for text in CRON), ("", 1000), ("", 90_000)]),
        catch_up=st.sampled_from(["none", "one", "all"]),
        jitter_ms=st.sampled_from([0, 0, 5000, 10 * MINUTE]),
        paused=st.sampled_from([False, False, True]),
        data=st.data(),
    )
    def put(
        self,
        name: str,
        times: tuple[str, int],
        catch_up: Any,
        jitter_ms: int,
        paused: bool,
        data: st.DataObject,
    ) -> None:
        topic = data.draw(st.sampled_from(sorted(self.model.topics)))
        cron, every_ms = times
        now = self.world.now
        known = self.model.schedules.pop(name, None)
        if known is not None:
            self.world.run(cmd.DropSchedule(name))
        self.world.schedule(
            name, topic, cron=cron, every_ms=every_ms, catch_up=catch_up, jitter_ms=jitter_ms,
            paused=paused,
        )  # fmt: skip
        options = of(self.world, name).options
        schedule = ModelSchedule(
            topic,
            is_time(cron, every_ms, now),
            catch_up,
            lambda at: options.jitter(name, at),
            paused,
        )
        schedule.next_at = now + every_ms if every_ms else schedule.after(now)
        self.model.schedules[name] = schedule
        self.save()

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        deleted = self.world.run(cmd.DropSchedule(name)).deleted
        assert deleted == (self.model.schedules.pop(name, None) is not None)
        self.save()

    @rule(name=NAMES, paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        if name not in self.model.schedules:
            with pytest.raises(ScheduleNotFound):
                self.world.run(cmd.PauseSchedule(name, paused))
            return
        self.world.run(cmd.PauseSchedule(name, paused))
        schedule = self.model.schedules[name]
        if schedule.paused and not paused:
            self.model.resume(name, self.world.now)
        elif paused and not schedule.paused:
            schedule.paused = True
            schedule.failures = schedule.retry_at = 0
        self.save()

    @rule(ms=st.sampled_from([1000, 1000, 3000, MINUTE, 7 * MINUTE, HOUR, 5 * HOUR]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(ms=st.sampled_from([1000, MINUTE, 2 * HOUR]))
    def set_back(self, ms: int) -> None:
        """The clock steps back: no time comes twice. Retries wait for their time."""
        self.world.wait(-ms)

    @rule(written=st.booleans())
    def fire(self, written: bool) -> None:
        self.world.fire()
        self.model.fire(self.world.now)
        if written:
            self.save()

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.model.restart()
        self.save()

    @rule()
    def kill(self) -> None:
        self.world.kill()
        self.model = copy.deepcopy(self.saved)
        self.model.restart()
        self.save()

    @rule()
    def tidy(self) -> None:
        self.world.tidy()
        self.save()

    @invariant()
    def agrees(self) -> None:
        schedules = self.world.state.schedules.by_name
        assert [*schedules] == sorted(self.model.schedules)
        for name, expected in self.model.schedules.items():
            found = schedules[name]
            assert found.next_at == expected.next_at, name
            assert (found.fired, found.paused) == (expected.fired, expected.paused)
            # A cron text's missed times are counted up to a bound.
            assert found.missed <= expected.missed
            if found.options.every_ms or expected.missed < 50:
                assert found.missed == expected.missed
        for topic, expected_jobs in self.model.topics.items():
            assert sorted(fired_into(self.world, topic)) == sorted(expected_jobs)
        check(self.world.state)


ScheduleMachine.TestCase.settings = settings(
    max_examples=scaled(25, 300), stateful_step_count=25, deadline=None
)
TestScheduleMachine = ScheduleMachine.TestCase


def test_a_firing_is_one_frame_with_its_job_and_the_next_time() -> None:
    world = World()
    world.put()
    world.schedule("s", every_ms=MINUTE)
    began = of(world).next_at - MINUTE
    world.wait(MINUTE)
    frames = world.engine.journal.jobs.written
    world.fire()
    world.step()
    assert world.engine.journal.jobs.written == frames + 1
    assert world.meta("q") == [{"schedule": "s", "scheduled_for": began + MINUTE}]
    assert (of(world).next_at, of(world).last_seq) == (began + 2 * MINUTE, 1)


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(20, 300), deadline=None)
def test_power_cuts_lose_no_firing_and_repeat_none(seed: int) -> None:
    rng = Random(seed)
    world = World(SimFileSystem(rng))
    world.put(durability=rng.choice(["disk", "fsync"]))
    world.schedule("s", every_ms=MINUTE, catch_up="all")
    first = of(world).next_at
    for _ in range(30):
        world.wait(rng.choice([MINUTE // 2, MINUTE, 3 * MINUTE]))
        world.fire()
        if rng.random() < 0.3:
            world.step()
        if rng.random() < 0.2:
            world.cut(rng)
        elif rng.random() < 0.1:
            world.tidy()
    world.fire()
    times = [at for _, at in fired_into(world)]
    assert times == [first + place * MINUTE for place in range(len(times))]
    assert times[-1] == of(world).next_at - MINUTE > world.now - MINUTE


def test_the_same_again_changes_nothing_and_other_times_begin_anew() -> None:
    world = World()
    world.put()
    assert world.schedule("s", every_ms=MINUTE).created
    next_at = of(world).next_at
    world.wait(1000)
    frames = world.engine.journal.jobs.written
    assert not world.schedule("s", every_ms=MINUTE).created
    assert world.engine.journal.jobs.written == frames
    world.schedule("s", every_ms=MINUTE, record=wish("other"))
    assert of(world).next_at == next_at
    world.schedule("s", every_ms=2 * MINUTE)
    assert of(world).next_at == world.now + 2 * MINUTE


def test_an_absent_one_is_created_and_another_is_compared() -> None:
    world = World()
    world.put()
    world.run(
        cmd.PutSchedule("s", ScheduleOptions("q", b"{}", b"", cron="0 3 * * *"))
    )  # as a topic
    other = ScheduleOptions("q", b'{"a": 1}', b"", every_ms=MINUTE, timezone="Europe/Berlin")
    result = world.run(cmd.PutSchedule("s", other, if_absent=True))
    assert result.differs == ("cron", "every_ms", "timezone", "record")
    assert of(world).options.cron == "0 3 * * *"


def test_a_paused_one_stays_so_when_it_is_declared_again() -> None:
    world = World()
    world.put()
    world.schedule("s", every_ms=MINUTE)
    world.run(cmd.PauseSchedule("s", True))
    world.schedule("s", every_ms=2 * MINUTE)
    world.wait(HOUR)
    world.fire()
    assert fired_into(world) == []
    world.schedule("s", every_ms=2 * MINUTE, paused=False)
    world.fire()
    assert fired_into(world) == [] and world.now < of(world).next_at <= world.now + 2 * MINUTE


def test_a_refused_firing_stays_due_and_is_tried_less_and_less_often() -> None:
    world = World()
    world.put(cap_records=1, discard="reject")
    world.write("q", "in the way")
    world.schedule("s", every_ms=HOUR, catch_up="none")
    scheduled_for = of(world).next_at
    world.wait(HOUR)
    tries = []
    for _ in range(200):
        before = of(world).failed
        world.fire()
        if of(world).failed > before:
            tries.append(world.now - scheduled_for)
        world.wait(1000)
    assert tries == [0, 1000, 3000, 7000, 15_000, 31_000, 63_000, 123_000, 183_000]
    error = of(world).error
    assert error is not None and error.code == "topic_full"
    world.take()
    world.ack(1)
    world.wait(MINUTE)
    world.fire()
    assert fired_into(world) == [("s", scheduled_for)] and of(world).error is None


def test_a_missing_topic_gets_the_firing_once_it_is_there() -> None:
    world = World()
    world.put()
    world.schedule("s", every_ms=HOUR)
    scheduled_for = of(world).next_at
    world.drop()
    world.wait(HOUR)
    world.fire()
    error = of(world).error
    assert error is not None and error.code == "topic_not_found"
    assert "q" not in world.state.topics
    world.put()
    world.wait(MINUTE)
    world.fire()
    assert fired_into(world) == [("s", scheduled_for)]


@pytest.mark.parametrize(
    ("on_conflict", "result", "jobs"),
    [("replace", "replaced", 1), ("keep", "kept", 1), ("reject", "rejected", 1)],
)
def test_a_key_makes_one_waiting_job(on_conflict: Any, result: str, jobs: int) -> None:
    world = World()
    world.put()
    world.schedule("s", every_ms=MINUTE, record=wish("x", key="k", on_conflict=on_conflict))
    first = of(world).next_at
    for _ in range(3):
        world.wait(MINUTE)
        world.fire()
    schedule = of(world)
    assert len(world.seqs()) == jobs
    assert (schedule.last_result, schedule.last_seq) == (result, 1)
    assert schedule.last_scheduled_for == first + 2 * MINUTE
    assert (schedule.fired, schedule.skipped) == ((3, 0) if result == "replaced" else (1, 2))
    latest = first + 2 * MINUTE if result == "replaced" else first
    assert fired_into(world) == [("s", latest)]


def test_run_writes_now_and_moves_nothing() -> None:
    world = World()
    world.put()
    world.schedule("s", every_ms=HOUR, paused=True)
    next_at = of(world).next_at
    world.wait(1000)
    outcome = world.run(cmd.RunSchedule("q", "s"))
    assert outcome == (world.now, 1, "created", 0)
    assert fired_into(world) == [("s", world.now)] and of(world).next_at == next_at


def test_what_is_refused() -> None:
    world = World(quotas=Quotas(schedules_max=1))
    with pytest.raises(TopicNotFound):
        world.schedule("s", every_ms=MINUTE)
    world.put("log", type="log")
    with pytest.raises(NotAQueue):
        world.schedule("s", "log", every_ms=MINUTE, record=wish("x", key="k"))
    world.schedule("s", "log", every_ms=MINUTE)
    with pytest.raises(Throttled) as refused:
        world.schedule("t", "log", every_ms=MINUTE)
    assert refused.value.detail == {"limit": "max_schedules", "max": 1}
    world.schedule("s", "log", every_ms=HOUR)


def test_many_due_at_once_fire_in_bounded_steps() -> None:
    world = World(segment_bytes=1 << 20)
    world.put()
    for number in range(100):
        world.schedule(f"s{number:02}", cron="0 * * * *")
    world.wait(HOUR)
    steps = 0
    while (look := world.firing.next_look()) is not None and look <= world.now:
        before = len(world.seqs())
        world.firing.step()
        assert len(world.seqs()) - before <= 16
        steps += 1
    assert len(world.seqs()) == 100 and steps <= 8


def test_many_that_are_noticed_late_are_not_missed_for_each_other() -> None:
    """The server is busy for long: who was on time when it looked is on time."""
    world = World(segment_bytes=1 << 20)
    world.put()
    for number in range(40):
        world.schedule(f"s{number:02}", cron="0 * * * *", catch_up="none")
    world.wait(HOUR - world.now % HOUR)
    while (look := world.firing.next_look()) is not None and look <= world.now:
        world.firing.step()
        world.wait(50_000)
    assert len(world.seqs()) == 40


def test_a_full_disk_makes_no_firing_late() -> None:
    """Whoever was due while the log took no changes fires when it does."""
    world = World(segment_bytes=1 << 20)
    world.put(durability="fsync")
    for name in "ab":
        world.schedule(name, every_ms=HOUR, catch_up="none")
    first = of(world, "a").next_at
    world.wait(HOUR)
    world.step()
    world.fs.capacity_bytes = sum(map(len, world.fs.contents().values()))
    for _ in range(200):
        world.fire()
        world.wait(1000)
    assert fired_into(world) == []
    error = of(world, "a").error
    assert error is not None and error.code == "internal"
    world.fs.capacity_bytes = None
    world.wait(1000)
    world.fire()
    assert fired_into(world) == [("a", first), ("b", first)]
    assert of(world, "a").error is None


def test_a_checkpoint_has_all_schedules_in_parts() -> None:
    world = World(segment_bytes=1 << 20)
    world.put(durability="fsync")
    for number in range(1200):
        world.schedule(f"s{number:04}", every_ms=MINUTE)
    world.wait(MINUTE)
    world.fire()
    kept = portrait(world.state)
    world.engine.journal.checkpoint(world.state, world.now)
    parts = 0
    while world.engine.journal.is_checkpointing:
        world.engine.journal.go_on_with_checkpoint(world.state, world.now)
        parts += 1
    assert parts == 2
    world.tidy()
    world.step()
    world.kill()
    assert portrait(world.state) == kept


def test_schedules_are_live_data_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction does not take for garbage what the next checkpoint says again."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    world = World(segment_bytes=1 << 20)
    world.put()
    for number in range(300):
        world.schedule(f"s{number}", every_ms=HOUR)
    world.tidy()
    order, segment = world.engine.journal.order, world.engine.journal.jobs.segment
    for _ in range(3):
        world.tidy()
    journal = world.engine.journal
    assert (journal.order, journal.jobs.segment) == (order, segment)
    assert journal.live_bytes > journal.jobs.bytes_total / 3


def test_jitter_is_the_same_whenever_it_is_computed_and_spreads() -> None:
    options = ScheduleOptions("q", b"{}", b"", every_ms=1000, jitter_ms=1000)
    drawn = [options.jitter(f"s{number}", 12345) for number in range(200)]
    assert drawn == [options.jitter(f"s{number}", 12345) for number in range(200)]
    assert len({*drawn}) > 150 and 0 <= min(drawn) <= max(drawn) <= 1000
    assert msgspec.json.encode(ScheduleOptions("q", b"", b"").jitter("s", 1)) == b"0"
