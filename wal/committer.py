"""Group commit: what is pending, what is written, what is durable, and poison.

Owns the queue of batches between appenders and the disk, the order in which they are written and
synced, and the thread that does so. Must not know how payloads become frames, how segments are
chosen, or who waits for what.

The theory: one round at a time. A round takes what is pending (bounded in bytes), writes it in
order, and syncs if anyone asked; whatever arrives meanwhile rides the next. Each of the two
promises moves one number, `written` and `durable`, and both only ever grow. After the first
failed operation nothing is tried again, because a kernel that failed to write pages may forget
them and report the next sync as good.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from wal.head import HeadFile
from wal.segment import LogSegment

ROUND_BYTES_MAX: Final = 16 << 20
LARGE_BYTES: Final = 1 << 20
"""Payloads from here on are summed and written as they are by the committer, never copied."""


@dataclass(slots=True)
class Stats:
    """Counters since the log was opened, and one hook.

    Attributes:
        frames: appended.
        rounds: of the committer that wrote something.
        syncs: asked of the file system while running.
        bytes_written: of frames, headers and padding included.
        rotations: segments started after the first.
        refused: appends that raised WalFull.
        pending_peak: most frames that ever waited to be written.
        on_sync: called by the committer with the seconds each sync took.
    """

    frames: int = 0
    rounds: int = 0
    syncs: int = 0
    bytes_written: int = 0
    rotations: int = 0
    refused: int = 0
    pending_peak: int = 0
    on_sync: Callable[[float], None] | None = None

    @property
    def batches(self) -> int:
        """The same as `rounds`."""
        return self.rounds


@dataclass(slots=True)
class _Batch:
    """Adjoining frames of one segment, to go out in one write; large parts in one of their own.

    Attributes:
        late: Places in `parts` of what is still to be made, and what makes it.
    """

    segment: LogSegment
    offset: int
    parts: list[bytes] = field(default_factory=list)
    late: list[tuple[int, Callable[[], bytes]]] = field(default_factory=list)
    size: int = 0
    last: int = 0
    sync: bool = False
    seals: bool = False


class Committer:
    """The queue and its one consumer. Methods marked (locked) need `lock` held by the caller."""

    def __init__(self, stats: Stats, durable: int) -> None:
        self.lock = threading.Lock()
        self.stats = stats
        # Written by the consumer only; read by anyone, since they only grow.
        self.written = durable
        self.durable = durable
        self.failure: BaseException | None = None
        # The note of how far the log has come; None before it may be changed.
        self.head: HeadFile | None = None
        self._wake = threading.Condition(self.lock)
        self._batches: deque[_Batch] = deque()
        self._open: _Batch | None = None
        self._sync_asked = False
        self._idle = False
        self._released = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._on_advance: Callable[[], None] = lambda: None
        # The segment that bytes were last written to, the only one with unsynced bytes.
        self._current: LogSegment | None = None

    def add(
        self,
        segment: LogSegment,
        offset: int,
        parts: list[bytes],
        size: int,
        number: int,
        sync: bool,
        late: tuple[int, Callable[[], bytes]] | None = None,
    ) -> None:
        """Queue one frame, for the round after the next `release`. (locked)

        Args:
            late: the place of a part that is made only when it is written, and what makes it.
        """
        batch = self._open
        if batch is None or batch.segment is not segment or batch.size >= ROUND_BYTES_MAX:
            batch = self._begin_batch(segment, offset)
        if late is not None:
            batch.late.append((len(batch.parts) + late[0], late[1]))
        batch.parts += parts
        batch.size += size
        batch.last = number
        if sync:
            batch.sync = True

    def release(self) -> None:
        """Let the next round take all that is queued. (locked)"""
        self._released = True
        self._notify()

    def roll(self, old: LogSegment, new: LogSegment) -> None:
        """Queue the seal of one segment and the header of the next. (locked)"""
        assert old.id + 1 == new.id
        batch = self._open
        if batch is None or batch.segment is not old:
            batch = self._begin_batch(old, old.end)
        batch.seals = True
        self._begin_batch(new, new.end)
        self.release()

    def ask_sync(self) -> None:
        """Queue a sync of all that is queued. (locked)"""
        self._sync_asked = True
        self.release()

    def poison(self, failure: BaseException) -> None:
        """Take no more work, for ever, and let the waiters know. (locked)"""
        if self.failure is None:
            self.failure = failure
        self._notify()

    def _notify(self) -> None:
        if self._idle:
            self._idle = False
            self._wake.notify()

    def _begin_batch(self, segment: LogSegment, offset: int) -> _Batch:
        self._open = _Batch(segment, offset, last=segment.last)
        self._batches.append(self._open)
        return self._open

    def syncs_next(self) -> bool:
        """Whether the next round may keep its thread waiting for the disk. (locked)"""
        return self._sync_asked or any(
            batch.sync or batch.seals or not batch.segment.header_durable for batch in self._batches
        )

    def step(self) -> bool:
        """One round. False when there was nothing to do, or the log is poisoned."""
        with self.lock:
            if self.failure is not None:
                return False
            batches = self._take() if self._released or not self.threaded else []
            # A sync that was asked for covers all that was queued then, so it waits for the
            # last of several rounds.
            asked = self._sync_asked and not self._batches
            if asked:
                self._sync_asked = False
        sync = asked or any(batch.sync for batch in batches)
        if not batches and not (sync and self.durable < self.written):
            return False
        try:
            self._round(batches, sync)
        except BaseException as failure:
            with self.lock:
                self.poison(failure)
            # What was written and not synced can no longer be promised.
            self._note(self.durable)
            self._call_notify()
            if not isinstance(failure, OSError):
                raise
        return True

    def _take(self) -> list[_Batch]:
        taken: list[_Batch] = []
        size = 0
        while self._batches and size < ROUND_BYTES_MAX:
            batch = self._batches.popleft()
            taken.append(batch)
            size += batch.size
        if not self._batches:
            self._open = None
            self._released = False
        return taken

    def _round(self, batches: list[_Batch], sync: bool) -> None:
        """Write, notify, sync, notify. Raises OSError as the file system does."""
        for batch in batches:
            self._write(batch)
        if batches:
            self.stats.rounds += 1
            self._call_notify()
        if sync and self.durable < self.written:
            assert self._current is not None
            self._timed(self._current.sync)
            self.durable = self.written
            # Before the wake-up: work behind it would compete with those who were woken.
            self._note(self.written)
            self._call_notify()
        else:
            self._note(self.written)

    def _note(self, written: int, *, sync: bool = False) -> None:
        """Keep the note of the log up to date. An older one is as true, so a failure is none."""
        head, segment = self.head, self._current
        if head is None or segment is None:
            return
        try:
            head.reach(segment.header.id, self.durable, written)
            if sync:
                head.sync()
        except OSError:
            return

    def _write(self, batch: _Batch) -> None:
        segment = batch.segment
        if not segment.header_durable:
            # The segment before was sealed by an earlier batch: see `roll`.
            assert self.durable == self.written
            self._timed(segment.begin)
            self._current = segment
            self._note(self.written, sync=True)
        self._current = segment
        if batch.parts:
            for place, make in batch.late:
                batch.parts[place] = make()
            offset = batch.offset
            for data in _pieces(batch.parts, batch.size):
                segment.write(data, offset)
                offset += len(data)
            assert offset == batch.offset + batch.size
            self.stats.bytes_written += batch.size
        assert batch.last >= self.written
        self.written = batch.last
        if batch.seals:
            self._timed(segment.seal)
            self.durable = self.written
            self._current = None

    def _timed(self, operation: Callable[[], None]) -> None:
        began = time.perf_counter()
        operation()
        self.stats.syncs += 1
        if self.stats.on_sync is not None:
            self.stats.on_sync(time.perf_counter() - began)

    def _call_notify(self) -> None:
        try:
            self._on_advance()
        except Exception as error:
            # A listener that fails is a bug of the owner. It must be heard, but it must not keep
            # what was promised to others from the disk.
            threading.excepthook(
                threading.ExceptHookArgs(
                    (type(error), error, error.__traceback__, threading.current_thread())
                )
            )

    @property
    def threaded(self) -> bool:
        """Whether rounds are run by the thread."""
        return self._thread is not None

    def start(self, on_advance: Callable[[], None]) -> None:
        """Start the thread."""
        assert self._thread is None, "the committer runs already"
        self._on_advance = on_advance
        self._thread = threading.Thread(target=self._loop, name="wal-committer", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        is_reported = False
        while True:
            while self.step():
                pass
            with self.lock:
                # An appender may have poisoned the log, and then no round reports it.
                report = self.failure is not None and not is_reported
                if not report:
                    if self._stopping:
                        return
                    if not self._has_work():
                        self._idle = True
                        self._wake.wait()
                        self._idle = False
                    continue
            is_reported = True
            self._call_notify()

    def _has_work(self) -> bool:
        return self.failure is None and self._released and (bool(self._batches) or self._sync_asked)

    def stop(self) -> None:
        """Let the thread finish what is queued, and end it. Fine if there is none."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert thread is not threading.current_thread()
        with self.lock:
            self._stopping = True
            self.release()
        thread.join()


def _pieces(parts: list[bytes], size: int) -> Iterator[bytes]:
    """What is written at a time: small parts joined, large ones as they are."""
    if size < LARGE_BYTES:
        yield b"".join(parts)
        return
    pending: list[bytes] = []
    pending_bytes = 0
    for part in parts:
        if pending_bytes and pending_bytes + len(part) >= LARGE_BYTES:
            yield b"".join(pending)
            pending, pending_bytes = [], 0
        pending.append(part)
        pending_bytes += len(part)
    if pending_bytes:
        yield b"".join(pending)
