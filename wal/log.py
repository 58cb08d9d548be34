"""The log: numbers, segments, space; open, append, read, drop.

Owns which segments there are, which one takes frames, and the number of the next frame. Must not
know how frames are written and synced (committer.py), what damage means (recovery.py), or what
payloads say.

Threads: `append`, `roll`, `sync` and the properties may be used from any thread; `read`,
`drop_before` and `close` by one owner at a time. `step` and `start` exclude each other.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Final, NoReturn, Protocol
from zlib import crc32

from wal.committer import LARGE_BYTES, Committer, Stats
from wal.errors import (
    FrameTooLarge,
    WalClosed,
    WalCorrupt,
    WalFailed,
    WalFull,
    WalLocked,
)
from wal.files import NO_SPACE, DirectoryLock, FileSystem, OsFileSystem
from wal.format import (
    FRAME_BYTES_LIMIT,
    FRAME_CHECKS,
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HEADER_BYTES,
    PADDING,
    Frame,
    SegmentHeader,
    Walk,
)
from wal.head import Head, HeadFile
from wal.opening import Opening
from wal.recovery import ReadShort
from wal.segment import LogSegment, SegmentInfo, read_whole, segment_path

SEGMENT_BYTES_MAX: Final = 64 << 20
FRAME_BYTES_MAX: Final = 256 << 20
ALLOCATION_STEP_BYTES: Final = 4 << 20
SPACE_AHEAD_BYTES: Final = 2 << 20
LOCK_NAME: Final = "LOCK"

assert FRAME_BYTES_MAX <= FRAME_BYTES_LIMIT
assert HEADER_BYTES < ALLOCATION_STEP_BYTES < SEGMENT_BYTES_MAX


class Progress(Protocol):
    """How far a log has come. It changes in another thread."""

    @property
    def written(self) -> int:
        """See `Log.written`."""
        ...

    @property
    def durable(self) -> int:
        """See `Log.durable`."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """See `Log.failure`."""
        ...


class Log:
    """A segmented write-ahead log in a directory of its own. Made by `Log.open`.

    Attributes:
        latest: Where the payload of the most recent append begins: the id of its segment, and the
            offset in there, in bytes.
        is_short_of_space: Whether `reserve_ahead` is due, as of the most recent append, so that
            appends need not allocate by themselves.
        segment_bytes_max: Size at which a new segment is started, in bytes.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        lock: DirectoryLock,
        opening: Opening,
        segment_bytes_max: int,
        frame_bytes_max: int,
        on_sync: Callable[[float], None] | None,
    ) -> None:
        """Not for callers: use `Log.open`."""
        self.directory = directory
        self.identity = opening.identity
        self.losses = opening.losses
        self.head_found: Head | None = opening.head
        self.stats = Stats(on_sync=on_sync)
        self._opening: Opening | None = opening
        self._fs = fs
        self._directory_lock = lock
        self.segment_bytes_max = segment_bytes_max
        self._frame_bytes_max = frame_bytes_max
        self._closed = False
        self.latest = 0, 0
        self.is_short_of_space = False
        if opening.is_examined:
            self._take_over(opening.segments)

    def _take_over(self, segments: list[LogSegment]) -> None:
        """Go on with the segments that were found; as of now all of them is durable."""
        active = segments[-1]
        # Highest number given out.
        self.appended = active.last
        self._segments = segments
        self._active = active
        self._committer = Committer(self.stats, active.last)
        self._lock = self._committer.lock
        self._sealed_bytes = sum(segment.end for segment in segments[:-1])

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        fs: FileSystem | None = None,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        set_damage_aside: bool = False,
        lost_payload: bytes = b"",
        random_bytes: Callable[[int], bytes] = os.urandom,
        begin: bool = True,
        on_sync: Callable[[float], None] | None = None,
        read_short: ReadShort | None = None,
    ) -> "Log":
        """Open a log, creating it if need be, and recover it.

        Args:
            directory: made if missing; belongs to the log alone.
            fs: the file system, the real one by default.
            segment_bytes_max: size at which a new segment is started, in bytes, from 1.
            frame_bytes_max: bound on a payload, in bytes, below 4 GiB. Must never be lowered
                below a payload that is in the log.
            set_damage_aside: on damage, go on with all frames that are whole, instead of refusing;
                see `losses`. For the operator to decide, each time.
            lost_payload: payload of the frames that replace lost ones between two whole ones.
            random_bytes: where the identity of a new log comes from.
            begin: with False no file is changed, and the log can only be read, before `begin` is
                called; for owners who may still find a reason to refuse it. Where the log ends, and
                whether it is sound, is known when `read` has come to its end, or after `examine`.
            on_sync: called by the committer with the seconds each sync took.
            read_short: finds the short forms of sealed segments. The first `read` takes those
                in place of the segments, and does not examine what they leave out.

        Raises:
            WalLocked: the directory is in use.
            WalCorrupt: something once promised is damaged; nothing was changed. Without `begin`,
                `read` may still raise it.
            WalFull: no disk space for a new log, or for the copy of a torn tail.
            OSError: the directory cannot be read or written.
        """
        assert segment_bytes_max >= 1
        assert 1 <= frame_bytes_max <= FRAME_BYTES_LIMIT
        fs = fs or OsFileSystem()
        fs.mkdir(directory)
        lock = _take_lock(fs, directory)
        try:
            opening = Opening(
                fs,
                directory,
                lock,
                frame_bytes_max=frame_bytes_max,
                set_damage_aside=set_damage_aside,
                lost_payload=lost_payload,
                random_bytes=random_bytes,
                read_short=read_short,
            )
        except BaseException:
            lock.take_back()
            raise
        log = cls(fs, directory, lock, opening, segment_bytes_max, frame_bytes_max, on_sync)
        if begin:
            log.begin()
        return log

    def begin(self) -> None:
        """Repair what a crash has left, and take appends from now on. Once, after `open`.

        Raises:
            WalFull: no disk space for it. The log is closed.
            OSError: the directory cannot be changed. The log is closed.
        """
        assert self._opening is not None, "begin() was called"
        try:
            self.examine()
        except BaseException:
            self._directory_lock.take_back()
            self._closed = True
            raise
        try:
            self._committer.head = self._opening.carry_out()
        except BaseException as error:
            self._directory_lock.release()
            self._closed = True
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                raise WalFull(f"{self.directory}: no disk space to open the log") from error
            raise
        self._opening = None

    def examine(self) -> None:
        """Determine where the log ends, before `begin`, unless that is known.

        Raises:
            WalCorrupt: something once promised is damaged.
        """
        opening = self._opening
        if opening is not None and not opening.is_examined:
            opening.examine()
            self._take_over(opening.segments)

    @property
    def starts(self) -> int:
        """How often the log was opened, as far as its note knows."""
        head = self._committer.head
        return head.head.starts if head is not None else 0

    @property
    def written(self) -> int:
        """Highest frame number handed to the operating system; 0 for none."""
        return self._committer.written

    @property
    def durable(self) -> int:
        """Highest frame number known to survive a power cut; 0 for none."""
        return self._committer.durable

    @property
    def progress(self) -> "Progress":
        """`written`, `durable` and `failure`, for frequent readers."""
        return self._committer

    @property
    def failure(self) -> BaseException | None:
        """Why the log is poisoned; None while it is not."""
        return self._committer.failure

    @property
    def segment(self) -> int:
        """Id of the segment of the most recent append (after `roll`: of the next)."""
        return self._active.id

    @property
    def bytes_total(self) -> int:
        """Bytes in use in all segments, preallocation not counted."""
        return self._sealed_bytes + self._active.end

    def note_growth(self, header: SegmentHeader, end: int, last: int) -> None:
        """Before `begin`: the owner has added frames to the files by itself. They are durable.

        Args:
            header: of the segment that has them, the last one or the next.
            end: where its last frame ends, in bytes.
            last: number of that frame.
        """
        assert self._opening is not None and self._opening.is_examined
        with self._lock:
            old = self._active
            if header.id == old.id:
                old.last, old.end = last, end
            else:
                assert header.id == old.id + 1 and header.first == old.last + 1
                path = segment_path(self.directory, header.id)
                self._active = LogSegment.recovered(header, path, None, last, end)
                self._segments.append(self._active)
                self._sealed_bytes += old.end
            self.appended = last
            self._committer.written = self._committer.durable = last

    def append(
        self,
        payload: bytes | Sequence[bytes],
        *,
        sync: bool,
        spare_bytes: int = 0,
        wake: bool = True,
    ) -> int:
        """Give a payload its number and queue it. Does not wait for it to be written.

        Args:
            payload: the bytes, or parts of them in order. They are kept, not copied.
            sync: whether `durable` should reach it without anyone asking further.
            spare_bytes: refuse unless this much space would be left behind the frame, in
                bytes, so that frames appended with less to spare find room on a full disk.
            wake: whether the committer may take the frame at once. With False it waits for the
                next `wake`: an owner that appends many frames in one go makes one round of them.

        Returns:
            The frame number.

        Raises:
            RecordTooLarge, WalFull, WalFailed, WalClosed: nothing was changed.
        """
        body = [payload] if isinstance(payload, bytes) else payload
        length = sum(map(len, body))
        if length > self._frame_bytes_max:
            raise FrameTooLarge(f"{length} bytes are over the bound of {self._frame_bytes_max}")
        assert self._opening is None, "begin() was not called"
        size = (FRAME_HEADER_BYTES + length + 7) & -8
        committer = self._committer
        with self._lock:
            if self._closed or committer.failure is not None:
                self._refuse()
            segment = self._active
            offset = segment.end
            end = offset + size
            if end > self.segment_bytes_max or end + spare_bytes > segment.allocated:
                segment = self._make_room(size, spare_bytes)
                offset = segment.end
                end = offset + size
            number = self.appended + 1
            fields = FRAME_FIELDS.pack(FRAME_MAGIC, length, number, committer.durable)
            check = crc32(fields, segment.salt)
            rest = [*body, PADDING[-length & 7]]
            late = None
            if length < LARGE_BYTES:
                parts = [fields, _checks(check, rest), *rest]
            else:
                # Appenders need not wait for the sum.
                parts = [fields, b"", *rest]
                late = 1, partial(_checks, check, rest)
            # From here on nothing can fail.
            segment.end = end
            segment.last = self.appended = number
            self.latest = segment.id, offset + FRAME_HEADER_BYTES
            self.is_short_of_space = (
                segment.allocated - end < SPACE_AHEAD_BYTES
                and segment.allocated < self.segment_bytes_max
            )
            committer.add(segment, offset, parts, size, number, sync, late)
            if wake:
                committer.release()
            stats = self.stats
            stats.frames += 1
            stats.pending_peak = max(stats.pending_peak, number - committer.written)
        return number

    def wake(self) -> None:
        """Let the committer take all that was appended without waking it."""
        with self._lock:
            self._committer.release()

    @property
    def syncs_next(self) -> bool:
        """Whether the next `step` may wait for the disk, and not only hand bytes over."""
        with self._lock:
            return self.failure is None and self._committer.syncs_next()

    def reserve_ahead(self) -> None:
        """Allocate space for appends to come, in any thread. Never raises for want of it."""
        with self._lock:
            segment = self._active
            start = segment.allocated
            stop = min(start + ALLOCATION_STEP_BYTES, self.segment_bytes_max)
            if (
                self._closed
                or self.failure is not None
                or stop <= start
                or not segment.header_durable
            ):
                return
        if segment.reserve_ahead(start, stop):
            with self._lock:
                # If another thread changed it meanwhile, the allocated size is determined again.
                if segment is self._active and segment.allocated == start:
                    segment.allocated = stop

    def will_roll(self, nbytes: int) -> bool:
        """Whether appending a payload of `nbytes` bytes would begin a new segment."""
        assert nbytes >= 0
        active = self._active
        is_empty = active.last < active.first
        size = (FRAME_HEADER_BYTES + nbytes + 7) & -8
        return not is_empty and active.end + size > self.segment_bytes_max

    def roll(self) -> None:
        """Seal the active segment, so that the next frame begins a new one. Not if it is empty.

        Raises:
            WalFull, WalFailed, WalClosed: nothing was changed.
        """
        with self._lock:
            if self._closed or self.failure is not None:
                self._refuse()
            if not self._active.empty:
                try:
                    self._roll(0, 0)
                except OSError as error:
                    self._give_up(error)

    def sync(self) -> None:
        """Ask that everything appended so far be synced. Does not wait; see `durable`."""
        with self._lock:
            self._committer.ask_sync()

    def _make_room(self, size: int, spare_bytes: int) -> LogSegment:
        """The segment for a frame of `size` bytes, with space for it. Raises as append does."""
        assert spare_bytes >= 0
        active = self._active
        needed = active.end + size + spare_bytes
        try:
            if active.empty or active.end + size <= self.segment_bytes_max:
                active.reserve(needed, self._wished(active, needed))
            else:
                try:
                    self._roll(size, spare_bytes)
                except OSError as error:
                    # Disk full: space this segment holds already is as good as a new segment.
                    # Frames appended with nothing to spare must be able to use it.
                    if error.errno not in NO_SPACE or needed > active.allocated:
                        raise
        except OSError as error:
            self._give_up(error)
        return self._active

    def _wished(self, segment: LogSegment, needed: int) -> int:
        step = segment.allocated + ALLOCATION_STEP_BYTES
        return max(needed, min(step, self.segment_bytes_max))

    def _roll(self, size: int, spare_bytes: int) -> None:
        """Make the next segment the active one. On OSError nothing was changed."""
        old = self._active
        assert not old.empty
        header = SegmentHeader(old.id + 1, old.last + 1, self.identity)
        path = segment_path(self.directory, header.id)
        new = LogSegment(header, path, self._fs.create(path))
        needed = HEADER_BYTES + size + spare_bytes
        try:
            new.reserve_after(old, needed, self._wished(new, needed))
        except OSError:
            new.close()
            # If this fails the empty file stays, and the next try or recovery takes it over.
            self._fs.remove(path)
            raise
        self._committer.roll(old, new)
        self._sealed_bytes += old.end
        self._segments.append(new)
        self._active = new
        self.stats.rotations += 1

    def _give_up(self, error: OSError) -> NoReturn:
        """Turn a failure to get space into WalFull or poison."""
        if error.errno in NO_SPACE:
            self.stats.refused += 1
            raise WalFull(f"{self.directory}: no disk space: {error.strerror}") from error
        self._committer.poison(error)
        self._refuse()

    def _refuse(self) -> NoReturn:
        if self._closed:
            raise WalClosed(f"{self.directory}: the log is closed")
        failure = self.failure
        assert failure is not None
        raise WalFailed(f"{self.directory}: an earlier operation failed: {failure}") from failure

    def segments(self, newest: int = 0) -> list[SegmentInfo]:
        """All segments, oldest first; the last one is active.

        Args:
            newest: only so many of the newest ones, for callers with little time; 0 for all.
        """
        with self._lock:
            active = self._active
            return [s.info(is_sealed=s is not active) for s in self._segments[-newest:]]

    @property
    def oldest_segment(self) -> int:
        """Id of the oldest segment; ids are consecutive."""
        with self._lock:
            return self._segments[0].id

    def read(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Frame]:
        """Every frame that is written by now, in order.

        The first read before `begin` examines the log, so each segment is read once. If it
        is not read to its end, the next read starts over.

        Args:
            progress: called after each segment with bytes done and bytes in all.

        Raises:
            WalCorrupt: something once promised is damaged, or the files have changed since the log
                was opened.
            OSError: a file could not be read, or was dropped meanwhile.
        """
        opening = self._opening
        if opening is not None and not opening.is_examined:
            yield from opening.frames(progress)
            self._take_over(opening.segments)
            return
        with self._lock:
            written = self.written
            segments = [s for s in self._segments if s.first <= written and not s.empty]
            lasts = [min(s.last, written) for s in segments]
            total = sum(s.end for s in segments)
        done = 0
        for segment, last in zip(segments, lasts, strict=True):
            whole = opening.read_whole(segment) if opening else None
            walk = Walk(
                read_whole(self._fs, segment.path) if whole is None else whole,
                segment.salt,
                segment.first,
                segment.id,
                self._frame_bytes_max,
            )
            number = segment.first - 1
            for frame in walk:
                number = frame[0]
                if number > last:
                    break
                yield frame
            if number < last:
                raise WalCorrupt(segment.path, walk.offset, f"while reading: {walk.problem}")
            done += segment.end
            if progress is not None:
                progress(done, total)

    def drop_before(self, segment: int) -> int:
        """Delete the sealed segments with an id below `segment`, oldest first.

        A segment stays while its successor's header is not yet durable, and with it all behind
        it: call again later. That they may be missing is noted before they go, and the directory
        is synced after each deletion, so that a crash never leaves a gap.

        Returns:
            Bytes freed.

        Raises:
            WalFailed, WalClosed: the log is poisoned or closed.
            OSError: a file could not be removed; it and those behind it are still part of the log.
        """
        with self._lock:
            if self._closed or self.failure is not None:
                self._refuse()
            gone: list[LogSegment] = []
            for old, successor in pairwise(self._segments):
                if old.id >= segment or not successor.header_durable:
                    break
                gone.append(old)
        if gone:
            self._note_removal(gone[-1].id + 1)
        for old in gone:
            with self._lock:
                if self._closed or self.failure is not None:
                    self._refuse()
            self._remove(old)
        return sum(old.end for old in gone)

    def _note_removal(self, oldest: int) -> None:
        head = self._committer.head
        if head is not None:
            head.note_removal(oldest)
        elif self._opening is not None and self.head_found is not None:
            # Before `begin`, of a log that its owner adds to by itself.
            self.head_found = self.head_found._replace(oldest=oldest)
            HeadFile.take(self._fs, self.directory, self.head_found).close()

    def _remove(self, oldest: LogSegment) -> None:
        self._fs.remove(oldest.path)
        try:
            self._fs.sync_dir(self.directory)
        except OSError as error:
            # Whether the removal will last is unknown now, and a later one must not overtake it.
            with self._lock:
                self._committer.poison(error)
                self._refuse()
        with self._lock:
            assert self._segments[0] is oldest
            del self._segments[0]
            self._sealed_bytes -= oldest.end

    def start(self, on_advance: Callable[[], None]) -> None:
        """Start the committer thread.

        Args:
            on_advance: called from that thread after `written`, and again after `durable`, grew,
                and after a failure. Must be quick, and must not call `close`.
        """
        self._committer.start(on_advance)

    def step(self) -> bool:
        """One round of the committer in this thread; False when there was nothing to do."""
        assert not self._committer.threaded
        return self._committer.step()

    def close(self) -> None:
        """Write and sync everything, give back unused space, release the lock. Idempotent.

        A poisoned log is only released.

        Raises:
            WalFailed: not everything could be written and synced. The log is closed all the same.
        """
        if self._opening is not None:
            # `begin` was not called: nothing was changed, and no other thread has it.
            if not self._closed:
                self._closed = True
                self._directory_lock.take_back()
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            poisoned = self.failure is not None
            if not poisoned:
                self._committer.ask_sync()
        try:
            self._committer.stop()
            while self._committer.step():
                pass
            if self.failure is None:
                assert self.durable == self.appended
                try:
                    self._active.seal()
                except OSError as error:
                    with self._lock:
                        self._committer.poison(error)
                else:
                    self._note_the_end()
        finally:
            for segment in self._segments:
                segment.close()
            if self._committer.head is not None:
                self._committer.head.close()
            self._directory_lock.release()
        if self.failure is not None and not poisoned:
            raise WalFailed(f"{self.directory}: closing failed: {self.failure}") from self.failure

    def _note_the_end(self) -> None:
        head = self._committer.head
        if head is not None:
            # An older note is as true.
            with suppress(OSError):
                head.reach(self._active.id, self.durable, self.durable)
                head.sync()


def _checks(check: int, rest: Sequence[bytes]) -> bytes:
    """The checks of a frame: that of its fields, and of all but the checks."""
    crc = check
    for part in rest:
        crc = crc32(part, crc)
    return FRAME_CHECKS.pack(crc, check)


def _take_lock(fs: FileSystem, directory: str) -> DirectoryLock:
    try:
        return fs.lock(os.path.join(directory, LOCK_NAME))
    except BlockingIOError as error:
        holder = (error.strerror or "").split(" ")[0] or "unknown"
        raise WalLocked(f"{directory}: in use by process {holder}") from error
