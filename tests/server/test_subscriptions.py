"""The fan-out: nothing leaves before its promise, slow readers are left alone, bytes are shared."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from logqueue.api import frames
from logqueue.api.frames import StreamEvent
from logqueue.api.record_texts import DATA_SHOWN, RecordTexts
from logqueue.core import commands as cmd
from logqueue.errors import LogqueueError, StorageReadOnly
from logqueue.events import block as blocks
from logqueue.model.config import TopicOptions
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.fanout import Subscriptions
from logqueue.server.engine.subscribers import Cursor, ReadOptions, Subscriber, Subscription
from tests.core.world import World, fall_back

OPTIONS = ReadOptions(2, 1 << 20, frozenset(), DATA_SHOWN)


class Reader(Subscriber):
    """A connection that writes down what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.sent: list[bytes] = []
        self.encoded = 0
        self.has_run_out = False

    @property
    def can_take(self) -> bool:
        """See Subscriber."""
        return not self.is_slow

    @property
    def shared_form(self) -> str:
        """See Subscriber."""
        return "test"

    def encode(self, subscription: Subscription, events: list[StreamEvent]) -> bytes:
        """See Subscriber."""
        self.encoded += 1
        return b"".join([frames.encode_message(event) + b"\n" for event in events])

    def deliver(self, wire: bytes, at: float) -> None:
        """See Subscriber."""
        self.sent.append(wire)

    def run_out(self) -> None:
        """See Subscriber."""
        self.has_run_out = True

    def end(self, error: LogqueueError) -> None:
        """See Subscriber."""


class Scene:
    """A core whose log is stepped by hand, and readers of its topic `l`."""

    def __init__(self) -> None:
        self.world = World()
        self.world.put("l", type="log", durability="fsync")
        self.barrier = CommitBarrier(self.world.engine.journal.jobs, asyncio.get_running_loop())
        loop = asyncio.get_running_loop()
        self.subscriptions = Subscriptions(self.world.engine, self.barrier, loop, RecordTexts())

    def open(self, cursor: Cursor | None = None, *names: str) -> Reader:
        """A reader from the start, or from a cursor."""
        reader = Reader()
        self.subscriptions.open(reader)
        for name in names or ("l",):
            topic = self.world.state.topics.get(name)
            place = cursor or Cursor(0)
            self.subscriptions.add(Subscription(reader, name, topic, place, OPTIONS))
        return reader

    async def append(self, *data: object) -> None:
        """Append one record per value, and write them; their promise is not kept yet."""
        self.run(*data)
        await self.hand_over()

    def run(self, *data: object) -> None:
        """Append only."""
        records = [[str(value).encode() for value in data], None, None, None]
        command = cmd.Append("l", blocks.pack(records), len(data))
        for topic in self.world.engine.execute(command).topics:
            self.subscriptions.changed(topic)

    async def hand_over(self) -> None:
        """Have written what was appended."""
        self.world.hand_over()
        self.barrier.notify()
        await self.settle()

    async def commit(self) -> None:
        """Keep all promises."""
        self.world.step()
        self.barrier.notify()
        await self.settle()

    async def settle(self) -> None:
        """Let the loop do what is due; a topic's rest is far shorter than this many turns."""
        for _ in range(3):
            await asyncio.sleep(0.001)


def play(scene: Callable[[Scene], Awaitable[None]]) -> None:
    """Run a scene."""

    async def run() -> None:
        await scene(Scene())

    asyncio.run(run())


def seqs(sent: list[bytes]) -> list[int]:
    """The seqs of the records that were sent."""
    parts = b"".join(sent).split(b'"$seq":')[1:]
    return [int(part.partition(b",")[0]) for part in parts]


def test_nothing_leaves_before_its_promise() -> None:
    async def scene(s: Scene) -> None:
        reader = s.open()
        await s.commit()
        assert [b"caught_up" in wire for wire in reader.sent] == [True]
        await s.append(1)
        await s.append(2)
        assert seqs(reader.sent) == []
        await s.commit()
        await s.commit()
        assert seqs(reader.sent) == [1, 2]

    play(scene)


def test_a_frame_is_made_while_the_log_syncs() -> None:
    """Not before it has written the records, so that it never waits for readers; and only sending
    is left to be done behind the sync."""

    async def scene(s: Scene) -> None:
        reader = s.open()
        await s.commit()
        s.run(1)
        await s.settle()
        assert reader.encoded == 1, "the loop is idle, and the log has written nothing"
        await s.hand_over()
        assert (reader.encoded, seqs(reader.sent)) == (2, [])
        await s.commit()
        assert (reader.encoded, seqs(reader.sent)) == (2, [1])

    play(scene)


def test_readers_at_one_place_share_the_bytes() -> None:
    async def scene(s: Scene) -> None:
        readers = [s.open() for _ in range(3)]
        await s.commit()
        await s.append(1)
        await s.commit()
        last = [reader.sent[-1] for reader in readers]
        assert seqs(last[:1]) == [1]
        assert last[1] is last[0] and last[2] is last[0]

    play(scene)


def test_a_slow_reader_is_not_read_for() -> None:
    async def scene(s: Scene) -> None:
        reader, other = s.open(), s.open()
        await s.commit()
        reader.is_slow = True
        for number in range(7):
            await s.append(number)
        for _ in range(5):
            await s.commit()
        assert (seqs(reader.sent), seqs(other.sent)) == ([], [1, 2, 3, 4, 5, 6, 7])
        reader.is_slow = False
        s.subscriptions.resume(reader)
        await s.settle()
        assert seqs(reader.sent) == [1, 2, 3, 4, 5, 6, 7]
        # One batch at a time, each within the reader's own limit.
        assert max(len(seqs([wire])) for wire in reader.sent) == 2

    play(scene)


def test_what_was_held_when_a_reader_left_counts_as_unread() -> None:
    async def scene(s: Scene) -> None:
        cursor = Cursor(0)
        reader = s.open(cursor)
        await s.commit()
        await s.append(1)
        assert cursor.seq == 1 and seqs(reader.sent) == []
        s.subscriptions.close(reader)
        assert cursor.seq == 0
        await s.commit()
        assert seqs(reader.sent) == []
        follower = s.open(cursor)
        await s.commit()
        assert seqs(follower.sent) == [1]

    play(scene)


def test_topics_in_the_order_of_their_names() -> None:
    async def scene(s: Scene) -> None:
        s.world.put("a", type="log")
        s.world.write("a", 1, 2, 3)
        s.world.write("l", 1)
        reader = s.open(None, "l", "gone", "a")
        for _ in range(4):
            await s.commit()
        sent = b"".join(reader.sent).splitlines()
        found = [(event.split(b'"')[3], event.split(b'"')[7]) for event in sent]
        assert found == [
            (b"record", b"a"),
            (b"record", b"a"),
            (b"caught_up", b"a"),
            (b"topic_deleted", b"gone"),
            (b"record", b"l"),
            (b"caught_up", b"l"),
        ]

    play(scene)


def test_a_deleted_topic_is_told_once_it_is_gone_for_good() -> None:
    async def scene(s: Scene) -> None:
        reader = s.open()
        await s.commit()
        for topic in s.world.engine.execute(cmd.DropTopic("l", False)).topics:
            s.subscriptions.changed(topic)
        # A new topic of this name is another topic.
        s.world.engine.execute(cmd.PutTopic("l", TopicOptions().resolved()))
        await s.settle()
        ran_out = [reader.has_run_out]
        await s.commit()
        assert [*ran_out, reader.has_run_out] == [False, True]
        assert reader.sent[-1].startswith(b'{"op":"topic_deleted","topic":"l"')

    play(scene)


def test_after_a_failure_readers_go_on_from_what_is_promised() -> None:
    async def scene(s: Scene) -> None:
        reader = s.open()
        await s.append(1)
        await s.commit()
        await s.commit()
        assert seqs(reader.sent) == [1]

        def refuse(op: Any) -> OSError | None:
            is_sync = getattr(op, "kind", "") == "sync"
            return OSError(errno.EIO, "the disk is gone") if is_sync else None

        s.world.fs.fail_when(refuse)
        with pytest.raises(StorageReadOnly):
            s.world.write("l", 2)
        s.subscriptions.changed(s.world.state.topics["l"])
        await s.settle()
        assert seqs(reader.sent) == [1]
        engine = s.world.engine
        fall_back(engine)
        s.subscriptions.adopt(engine.state.instances)
        await s.settle()
        assert seqs(reader.sent) == [1]
        assert not any(b"tombstone" in wire for wire in reader.sent)

    play(scene)
