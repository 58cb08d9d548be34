"""Readers that go along with each other see what each would see alone; and what it costs them.

The loop is turned by hand, so that everything is counted and nothing depends on speed.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, NamedTuple, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from logqueue.api import frames
from logqueue.api.frames import StreamEvent
from logqueue.api.record_texts import DATA_SHOWN, TAGS_SHOWN, RecordTexts
from logqueue.core import commands as cmd
from logqueue.errors import LogqueueError, StorageUnreadable
from logqueue.server.engine import fanout, reader_groups
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.fanout import DELIVERIES_PER_TURN, Subscriptions
from logqueue.server.engine.subscribers import Cursor, ReadOptions, Subscriber, Subscription
from tests.core.world import World, fall_back, job, pack
from tests.effort import scaled

ALL = ReadOptions(1000, 1 << 20, frozenset(), DATA_SHOWN)
TWO = ReadOptions(2, 1 << 20, frozenset(), DATA_SHOWN)
NOT_A = ReadOptions(1000, 100, frozenset((b'"a"',)), DATA_SHOWN | TAGS_SHOWN)
ONE_NOT_A = ReadOptions(1, 1 << 20, frozenset((b'"a"',)), DATA_SHOWN)
OPTIONS = (ALL, ONE_NOT_A, TWO, NOT_A)


class HandLoop:
    """An event loop as far as the fan-out knows one; a turn is one call of `turn`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def time(self) -> float:
        """Seconds, by hand."""
        return self.now

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """In the next turn."""
        self._ready.append((call, args))

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, call: Callable[..., object], *args: Any) -> None:
        """In the first turn from then on."""
        self._count += 1
        heappush(self._timers, (when, self._count, call, args))

    def turn(self) -> bool:
        """Whether there was anything to call."""
        while self._timers and self._timers[0][0] <= self.now:
            _, _, call, args = heappop(self._timers)
            self.call_soon(call, *args)
        ready, self._ready = self._ready, deque()
        for call, args in ready:
            call(*args)
        return bool(ready)


class Reader(Subscriber):
    """A connection that notes what it is sent, and that it fits what it was sent before."""

    masks_first_loss = True

    def __init__(self, scene: Scene, form: str | None = "test") -> None:
        super().__init__()
        self.scene = scene
        self.form = form
        self.is_slow = False
        self.seqs: dict[str, list[int]] = {}
        self.places: dict[str, int] = {}
        self.gaps: dict[str, set[int]] = {}
        self.kinds: list[str] = []
        self.reserved = 0
        self.has_run_out = False
        self.ended_by: LogqueueError | None = None
        self.wires: list[bytes] = []

    @property
    def can_take(self) -> bool:
        """See Subscriber."""
        return not self.is_slow

    @property
    def shared_form(self) -> str | None:
        """See Subscriber."""
        return self.form

    def encode(self, subscription: Subscription, events: list[StreamEvent]) -> bytes:
        """See Subscriber."""
        self.scene.encoded += 1
        return b"".join([frames.encode_message(event) + b"\n" for event in events])

    def reserve(self) -> None:
        """See Subscriber."""
        self.reserved += 1

    def discard(self) -> None:
        """See Subscriber."""
        self.reserved -= 1

    def deliver(self, wire: bytes, at: float) -> None:
        """See Subscriber."""
        self.reserved -= 1
        assert self.reserved == 0, "one delivery at a time"
        self.scene.delivered += 1
        self.wires.append(wire)
        for line in wire.splitlines():
            self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        name, kind = event["topic"], event["op"]
        self.kinds.append(kind)
        if kind == "record":
            assert event["from_seq"] == self.places[name], "the events of a reader are a chain"
            seqs = [record["$seq"] for record in event["records"]]
            assert all(event["from_seq"] < seq <= event["to_seq"] for seq in seqs)
            self.seqs.setdefault(name, []).extend(seqs)
            self.places[name] = event["to_seq"]
        elif kind == "tombstone":
            is_first = name not in self.gaps
            assert event["reason"] == ("from_seq_too_old" if is_first else "cap")
            assert event["gap_from"] == self.places[name] + 1
            self.places[name] = event["gap_to"]
            gap = range(event["gap_from"], event["gap_to"] + 1)
            self.gaps.setdefault(name, set()).update(gap)
        elif kind == "caught_up":
            # Records that a filter skips move a reader without an event.
            assert event["head_seq"] >= self.places[name]
            self.places[name] = event["head_seq"]

    def run_out(self) -> None:
        """See Subscriber."""
        self.has_run_out = True

    def end(self, error: LogqueueError) -> None:
        """See Subscriber."""
        self.ended_by = error
        self.scene.subscriptions.close(self)


class Follower(NamedTuple):
    """A reader and where it began."""

    reader: Reader
    starts: dict[str, int]
    options: ReadOptions


class Scene:
    """A core on a simulated disk, readers of its topics, and a loop that is turned by hand."""

    def __init__(self) -> None:
        self.world = World()
        for name in ("l", "m"):
            self.world.put(name, type="log", durability="fsync")
        self.loop = HandLoop()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.barrier = CommitBarrier(self.world.engine.journal.jobs, loop)
        self.subscriptions = Subscriptions(self.world.engine, self.barrier, loop, RecordTexts())
        self.encoded = self.delivered = self.per_turn_max = 0

    def open(
        self,
        starts: dict[str, int] | None = None,
        options: ReadOptions = ALL,
        cursors: dict[str, Cursor] | None = None,
        form: str | None = "test",
    ) -> Follower:
        """A reader of some topics, of `l` from the start unless said otherwise."""
        reader = Reader(self, form)
        if cursors is None:
            cursors = {name: Cursor(seq) for name, seq in (starts or {"l": 0}).items()}
        self.subscriptions.open(reader)
        for name, cursor in cursors.items():
            topic = self.world.state.topics.get(name)
            reader.places[name] = cursor.seq
            self.subscriptions.add(Subscription(reader, name, topic, cursor, options))
        return Follower(reader, dict(reader.places), options)

    def append(self, name: str, *records: Any) -> None:
        """Append, and write; the promise is not kept yet."""
        texts = [r if isinstance(r, tuple) else job(r) for r in records]
        self.run(cmd.Append(name, pack(texts), len(texts)))

    def run(self, command: cmd.Command[Any]) -> None:
        """Execute a command and wake the readers."""
        for topic in self.world.engine.execute(command).topics:
            self.subscriptions.changed(topic)
        self.world.hand_over()
        self.barrier.notify()
        self.turn()

    def commit(self) -> None:
        """Keep all promises."""
        self.world.step()
        self.barrier.notify()

    def turn(self) -> bool:
        """One turn of the loop."""
        before = self.delivered
        was_busy = self.loop.turn()
        self.per_turn_max = max(self.per_turn_max, self.delivered - before)
        return was_busy

    def settle(self) -> None:
        """Turn until nothing is left to do, with the log and the clock going on."""
        for _ in range(10_000):
            self.commit()
            if not self.turn():
                if not self.loop._timers:
                    return
                self.loop.now += fanout.REST_MAX_S
        raise AssertionError("the readers never come to rest")


def leaders(scene: Scene) -> int:
    """How many readers are marked when `l` changes."""
    return len(scene.subscriptions.channels[scene.world.topic("l").number].subscriptions)


# -- groups --------------------------------------------------------------------------------------


def test_readers_in_one_place_are_read_for_once() -> None:
    scene = Scene()
    followers = [scene.open() for _ in range(100)]
    scene.settle()
    assert leaders(scene) == 1
    scene.append("l", 1)
    encoded = scene.encoded
    scene.settle()
    assert scene.encoded == encoded + 1
    last = followers[0].reader.wires[-1]
    assert all(f.reader.wires[-1] is last and f.reader.seqs["l"] == [1] for f in followers)


def test_a_turn_of_the_loop_writes_to_so_many_readers() -> None:
    scene = Scene()
    followers = [scene.open() for _ in range(100)] + [scene.open({"m": 0}) for _ in range(100)]
    scene.settle()
    scene.append("l", 1)
    scene.append("m", 1)
    scene.per_turn_max = 0
    scene.settle()
    assert scene.per_turn_max == DELIVERIES_PER_TURN
    assert all(sum(map(len, f.reader.seqs.values())) == 1 for f in followers)


def test_what_comes_while_a_delivery_is_on_its_way_is_one_more_delivery() -> None:
    scene = Scene()
    followers = [scene.open() for _ in range(3)]
    scene.settle()
    scene.append("l", 0)
    scene.turn()
    for number in range(1, 6):
        scene.append("l", number)
        scene.turn()
    scene.settle()
    records = [f.reader.kinds.count("record") for f in followers]
    assert records == [2, 2, 2]


def test_a_topic_rests_as_long_as_its_delivery_took_and_not_longer_than_its_bound() -> None:
    scene = Scene()
    reader = scene.open().reader
    scene.settle()
    for took_s, rest_s in ((0.0, 0.0), (0.004, 0.004), (0.5, fanout.REST_MAX_S)):
        scene.append("l", 1)
        scene.turn()
        scene.commit()
        scene.turn()
        scene.loop.now += took_s
        scene.turn()
        before = len(reader.wires)
        scene.append("l", 2)
        for now in (scene.loop.now + rest_s * 0.9, scene.loop.now + rest_s):
            assert len(reader.wires) == before
            scene.loop.now = now
            scene.turn()
            scene.turn()
            scene.commit()
            scene.turn()
            if rest_s == 0.0:
                break
        assert len(reader.wires) == before + 1
        scene.settle()
        scene.loop.now += 1


def test_a_slow_reader_leaves_its_group_and_comes_back() -> None:
    scene = Scene()
    followers = [scene.open(options=TWO) for _ in range(4)]
    scene.settle()
    first = followers[0].reader
    first.is_slow = True
    for number in range(5):
        scene.append("l", number)
        scene.settle()
    assert leaders(scene) == 2, "the slow one, and one for all others"
    assert "l" not in first.seqs and followers[1].reader.seqs["l"] == [1, 2, 3, 4, 5]
    first.is_slow = False
    scene.subscriptions.resume(first)
    scene.settle()
    scene.append("l", 5)
    scene.settle()
    assert leaders(scene) == 1
    assert all(f.reader.seqs["l"] == [1, 2, 3, 4, 5, 6] for f in followers)
    assert max(len(w.split(b'"$seq"')) - 1 for w in first.wires) == 2


def test_when_the_leader_goes_another_one_leads() -> None:
    scene = Scene()
    followers = [scene.open() for _ in range(3)]
    scene.settle()
    for leaving in (0, 1):
        scene.append("l", leaving)
        scene.turn()  # it is read, and waits for the log
        scene.subscriptions.close(followers[leaving].reader)
        scene.settle()
    assert [f.reader.seqs.get("l", []) for f in followers] == [[], [1], [1, 2]]
    scene.subscriptions.close(followers[2].reader)
    assert not scene.subscriptions.channels and not scene.subscriptions._groups._open


def test_a_group_takes_so_many_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_groups, "READERS_PER_GROUP_MAX", 10)
    scene = Scene()
    followers = [scene.open() for _ in range(25)]
    scene.settle()
    assert leaders(scene) == 3
    scene.append("l", 1)
    scene.settle()
    assert all(f.reader.seqs["l"] == [1] for f in followers)


def test_streams_of_one_session_share_its_records() -> None:
    scene = Scene()
    cursors = {"l": Cursor(0)}
    one, alone = scene.open(cursors=cursors), scene.open()
    scene.settle()
    scene.append("l", 1, 2)
    scene.settle()
    assert leaders(scene) == 1
    # The client has not seen all of it, and comes back while its stream is still there.
    cursors["l"].seq = 1
    two = scene.open(cursors=cursors)
    assert one.reader.group is None and alone.reader.group is not None
    for slow, number in ((None, 3), (one, 4), (two, 5), (None, 6), (None, 7)):
        for follower in (one, two):
            follower.reader.is_slow = follower is slow
            scene.subscriptions.resume(follower.reader)
            follower.reader.places["l"] = cursors["l"].seq
        scene.append("l", number)
        scene.settle()
        got = [*one.reader.seqs["l"], *two.reader.seqs["l"]]
        assert sorted(got) == [1, 2, 2, *range(3, number + 1)], "after that, each record once"
    scene.subscriptions.close(one.reader)
    two.reader.places["l"] = cursors["l"].seq
    scene.append("l", 8)
    scene.settle()
    assert two.reader.seqs["l"][-1] == 8 and leaders(scene) == 1
    assert alone.reader.seqs["l"] == [*range(1, 9)]


def test_a_group_waits_until_the_last_of_its_readers_has_what_was_read() -> None:
    scene = Scene()
    followers = [scene.open(options=TWO) for _ in range(DELIVERIES_PER_TURN + 8)]
    scene.settle()
    scene.append("l", 1, 2, 3)
    scene.turn()
    scene.commit()
    for _ in range(5):
        # Its first reader has it, and says that it has room.
        scene.subscriptions.resume(followers[0].reader)
        scene.turn()
    scene.settle()
    assert all(f.reader.seqs["l"] == [1, 2, 3] for f in followers)


def test_who_leaves_a_group_knows_of_the_losses_that_were_reported_to_it() -> None:
    scene = Scene()
    followers = [scene.open(options=TWO) for _ in range(3)]
    scene.settle()
    scene.run(cmd.PatchTopic("l", {"cap_records": 3}))
    slow = followers[1].reader
    for number in range(2):
        slow.is_slow = number == 1
        scene.append("l", *range(9))
        scene.settle()
    slow.is_slow = False
    scene.subscriptions.resume(slow)
    # Its next loss is a "cap", as `Reader` checks.
    scene.settle()
    assert all(f.reader.seqs["l"][-3:] == [16, 17, 18] for f in followers)


def test_who_leaves_a_group_that_is_behind_is_told_when_it_has_caught_up() -> None:
    scene = Scene()
    scene.world.patch("l", dedupe_node=True)
    followers = [scene.open(options=ONE_NOT_A) for _ in range(3)]
    scene.settle()
    scene.append("l", job(1, node="b"), job(2, node="a"))
    scene.turn()
    scene.commit()
    slow = followers[1].reader
    slow.is_slow = True
    scene.settle()
    assert [f.reader.kinds[-1] for f in followers] == ["caught_up", "record", "caught_up"]
    slow.is_slow = False
    scene.subscriptions.resume(slow)
    scene.settle()
    assert slow.kinds[-1] == "caught_up"


def test_the_end_of_a_topic_is_reported_to_each_reader() -> None:
    scene = Scene()
    followers = [scene.open({"l": 0, "m": 0}) for _ in range(3)]
    scene.settle()
    for name in ("m", "l"):
        scene.run(cmd.DropTopic(name, False))
        scene.settle()
        assert {f.reader.kinds[-1] for f in followers} == {"topic_deleted"}
        assert {f.reader.has_run_out for f in followers} == {name == "l"}


def test_after_a_failure_of_the_log_a_group_goes_on_from_what_is_promised() -> None:
    scene = Scene()
    followers = [scene.open() for _ in range(40)]
    scene.append("l", 1)
    scene.settle()
    scene.world.fs.fail_when(
        lambda op: OSError(5, "no disk") if getattr(op, "kind", "") == "sync" else None
    )
    scene.append("l", 2)
    scene.turn()
    scene.commit()
    for _ in range(10):
        scene.turn()
    fall_back(scene.world.engine)
    scene.subscriptions.adopt(scene.world.engine.state.instances)
    for _ in range(10):
        scene.turn()
    for follower in followers:
        (subscription,) = follower.reader.subscriptions.values()
        assert (follower.reader.seqs["l"], subscription.cursor.seq) == ([1], 1)
        assert follower.reader.reserved == 0 and "tombstone" not in follower.reader.kinds


def test_data_that_cannot_be_read_ends_all_readers_that_would_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    followers = [scene.open() for _ in range(5)]
    other = scene.open({"m": 0})
    scene.append("l", 1)
    scene.settle()

    def fail(*_: object) -> bytes:
        raise StorageUnreadable.because("000001", 17, "Input/output error")

    monkeypatch.setattr(scene.subscriptions._texts, "join", fail)
    scene.append("l", 2)
    scene.settle()
    assert all(isinstance(f.reader.ended_by, StorageUnreadable) for f in followers)
    assert other.reader.ended_by is None and len(scene.subscriptions.channels) == 1
    assert {(f.reader.seqs["l"][-1], f.reader.reserved) for f in followers} == {(1, 0)}


# -- any reader against a naive one --------------------------------------------------------------


class Naive:
    """What each topic's instance holds: the records by seq, and the node of each."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[int, str]] = {"l": {}, "m": {}}

    def expected(self, name: str, start: int, options: ReadOptions) -> list[int]:
        """What a reader that began there has seen in the end."""
        return [
            seq
            for seq, node in self.nodes[name].items()
            if seq > start and f'"{node}"'.encode() not in options.nodes
        ]


_moves = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("lm"), st.text("ab", min_size=1, max_size=4)),
        st.tuples(st.just("turn"), st.integers(1, 3)),
        st.tuples(st.just("commit")),
        st.tuples(st.just("rest")),
        st.tuples(
            st.just("open"),
            st.sampled_from([("l",), ("l",), ("m",), ("l", "m")]),
            st.sampled_from([None, 0, 0, 1, 5]),
            st.sampled_from(OPTIONS),
            st.sampled_from(["test", "test", "other", None]),
        ),
        st.tuples(st.just("slow"), st.integers(0, 20)),
        st.tuples(st.just("fast"), st.integers(0, 20)),
        st.tuples(st.just("resume"), st.integers(0, 20), st.integers(0, 3)),
        st.tuples(st.just("close"), st.integers(0, 20)),
        st.tuples(st.just("drop")),
        st.tuples(st.just("cap"), st.integers(1, 4)),
    ),
    max_size=60,
)


class Play:
    """A scene in which anything happens, and what must come of it."""

    def __init__(self) -> None:
        self.scene = Scene()
        for name in ("l", "m"):
            self.scene.world.patch(name, dedupe_node=True)
        self.naive = Naive()
        self.followers: list[Follower] = []
        self.is_dropped = False

    def append(self, name: str, nodes: str) -> None:
        """Write a record by each of these nodes."""
        if name == "m" and self.is_dropped:
            return
        known = self.naive.nodes[name]
        for node in nodes:
            known[len(known) + 1] = node
        self.scene.append(name, *[job(node, node=node) for node in nodes])

    def turn(self, times: int) -> None:
        """Turn the loop."""
        for _ in range(times):
            self.scene.turn()

    def commit(self) -> None:
        """Keep all promises."""
        self.scene.commit()

    def rest(self) -> None:
        """Let time pass."""
        self.scene.loop.now += 0.003

    def open(
        self, names: tuple[str, ...], start: int | None, options: ReadOptions, form: str | None
    ) -> None:
        """A reader that begins somewhere up to the head."""
        state = self.scene.world.state
        names = tuple(name for name in names if name in state.topics)
        heads = {name: state.topics[name].head for name in names}
        places = {n: head if start is None else min(start, head) for n, head in heads.items()}
        if places:
            self.followers.append(self.scene.open(places, options, form=form))

    def slow(self, number: int) -> None:
        """A client that reads no more for now."""
        for follower in self.followers[number : number + 1]:
            follower.reader.is_slow = True

    def fast(self, number: int) -> None:
        """It has caught up."""
        for follower in self.followers[number : number + 1]:
            follower.reader.is_slow = False
            self.scene.subscriptions.resume(follower.reader)

    def close(self, number: int) -> None:
        """A client that hangs up."""
        for follower in self.followers[number : number + 1]:
            self.scene.subscriptions.close(follower.reader)
            self.followers.remove(follower)

    def resume(self, number: int, back: int) -> None:
        """A client that comes back while its old stream is still there, from a place it has seen;
        the old one goes afterwards."""
        for old in self.followers[number : number + 1]:
            subscriptions = old.reader.subscriptions
            if len(subscriptions) != len(old.starts):
                continue
            cursors = {name: s.cursor for name, s in subscriptions.items()}
            for name, cursor in cursors.items():
                place = max(old.reader.places[name] - back, 0)
                cursor.seq = min(cursor.seq, place)
            new = self.scene.open(None, old.options, cursors, form=old.reader.form)
            self.scene.subscriptions.close(old.reader)
            self.followers[number] = new

    def drop(self) -> None:
        """One of the topics goes."""
        if not self.is_dropped:
            self.is_dropped = True
            self.scene.run(cmd.DropTopic("m", False))

    def cap(self, most: int) -> None:
        """From now on a topic keeps so few records, and readers that are behind lose some."""
        self.scene.run(cmd.PatchTopic("l", {"cap_records": most}))

    def finish(self) -> None:
        """In the end every reader that is left has seen what it would have seen alone."""
        for number in range(len(self.followers)):
            self.fast(number)
        self.scene.settle()
        assert self.scene.per_turn_max <= 2
        for reader, starts, options in self.followers:
            assert reader.reserved == 0 and not reader.held
            for name, start in starts.items():
                seen = reader.seqs.get(name, [])
                wanted = self.naive.expected(name, start, options)
                if name == "m" and self.is_dropped:
                    assert seen == wanted[: len(seen)] and "topic_deleted" in reader.kinds
                else:
                    lost = reader.gaps.get(name, set())
                    assert seen == [seq for seq in wanted if seq in seen]
                    assert {*wanted} - {*seen} <= lost and not lost & {*seen}
                    assert not seen or "caught_up" in reader.kinds[-len(starts) :]
                assert len(seen) == len({*seen})
            if self.is_dropped and [*starts] == ["m"]:
                assert reader.has_run_out
        for follower in [*self.followers]:
            self.scene.subscriptions.close(follower.reader)
        groups = self.scene.subscriptions._groups
        assert not groups.channels and not groups._open


@settings(max_examples=scaled(150, 3000), deadline=None)
@given(_moves)
def test_readers_in_groups_see_what_each_would_see_alone(moves: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fanout, "DELIVERIES_PER_TURN", 2)
        patch.setattr(reader_groups, "READERS_PER_GROUP_MAX", 4)
        play = Play()
        for name, *arguments in moves:
            getattr(play, name)(*arguments)
        play.finish()
