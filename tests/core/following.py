"""A standby of a world: its own copy of the segment files, grown a part at a time.

Owns: copying what is written, in pieces that end between two frames. Must not know: replicas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random

from logqueue.core.state import State
from logqueue.model.limits import Quotas
from logqueue.segments.index import LogName
from logqueue.server.storage.journal import Journal
from logqueue.server.storage.log_follower import LogFollower
from logqueue.server.storage.log_replay import LogEntry
from tests.core.world import World
from wal import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    Frame,
    SegmentHeader,
    Walk,
    decode_header,
    encode_header,
    read_whole,
    salt_of,
    segment_path,
)
from wal.testing.simfs import SimFileSystem

LOGS: tuple[LogName, ...] = ("jobs", "leases")


class Follower:
    """A follower of one world, on a file system of its own."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.fs = SimFileSystem(Random(1))
        self._seen: dict[LogName, int] = {"jobs": 0, "leases": 0}
        self._staged: dict[LogName, deque[tuple[SegmentHeader, Frame, bytes]]] = {
            "jobs": deque(),
            "leases": deque(),
        }
        self._segment: dict[LogName, int] = {"jobs": 0, "leases": 0}
        for name in LOGS:
            self.fs.mkdir(f"data/{name}")
        self.stage()
        for name in LOGS:
            for _ in self._copied(name, 10**9):
                pass
            if not self._segment[name]:
                identity = world.engine.journal.logs[name].identity
                header = encode_header(SegmentHeader(1, 1, identity))
                self.fs.create(segment_path(f"data/{name}", 1)).pwrite(header, 0)
                self._segment[name] = 1
        self.open()

    def open(self) -> None:
        """Replay the copy from the beginning."""
        journal = Journal.open("data", segment_bytes_max=1 << 20, fs=self.fs)
        self.follower = LogFollower(journal, State(Quotas(), journal.payloads))
        self.follower.load()

    @property
    def state(self) -> State:
        """What a reader sees."""
        return self.follower.state

    def stage(self) -> None:
        """Put aside what is written by now: the world may drop it."""
        for name in LOGS:
            log = self.world.engine.journal.logs[name]
            for info in log.segments():
                if info.last <= self._seen[name] or not info.header_durable:
                    continue
                data = read_whole(self.world.fs, info.path)[: info.bytes]
                header = decode_header(data[:HEADER_BYTES])[1]
                assert header is not None
                salt = salt_of(header.identity, header.id)
                start = HEADER_BYTES
                for frame in Walk(data, salt, header.first, header.id, FRAME_BYTES_MAX):
                    end = (frame.offset + len(frame.payload) + 7) & -8
                    if self._seen[name] < frame.number <= log.written:
                        self._staged[name].append((header, frame, data[start:end]))
                        self._seen[name] = frame.number
                    start = end

    def follow(self, frames_max: int = 10**9, logs: tuple[LogName, ...] = LOGS) -> int:
        """Take so many frames of some logs; how many transactions reached the state."""
        self.stage()
        for name in logs:
            for growth in self._copied(name, frames_max):
                self.follower.add(self.follower.note_growth(name, *growth))
        return self._take()

    def release(self) -> int:
        """Take also what waits for what may be lost."""
        return self._take(everything=True)

    def _take(self, *, everything: bool = False) -> int:
        taken: list[LogEntry] = []
        for entry in self.follower.take(everything=everything):
            if entry is not None:
                taken.append(entry)
            if self.rng.random() < 0.2:
                self.follower.catch_up()
        self.follower.catch_up()
        return len(taken)

    def _copied(
        self, name: LogName, frames_max: int
    ) -> Iterator[tuple[SegmentHeader, int, int, list[Frame]]]:
        """Move staged frames to the files."""
        staged = self._staged[name]
        for _ in range(min(frames_max, len(staged))):
            header, frame, data = staged.popleft()
            path = segment_path(f"data/{name}", header.id)
            if header.id != self._segment[name]:
                self.fs.create(path).pwrite(encode_header(header), 0)
                self._segment[name] = header.id
            file = self.fs.open(path, writable=True)
            file.pwrite(data, file.size())
            yield header, file.size(), frame.number, [frame]
