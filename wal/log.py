"""The log: numbers, segments, space; open, append, read, drop.

Owns which segments there are, which one takes frames, and the number of the next frame. Must not
know how frames are written and synced (committer.py), what damage means (recovery.py), or what
payloads say.

Threads: `append`, `roll`, `sync` and the properties may be used from any thread; `read`,
`drop_before` and `close` by one owner at a time. `step` and `start` exclude each other.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NoReturn
from zlib import crc32

from wal.committer import Committer, Stats
from wal.errors import (
    RecordTooLarge,
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
    IDENTITY_BYTES,
    PADDING,
    Frame,
    SegmentHeader,
    Walk,
    frame_bytes,
)
from wal.recovery import Finding, Loss, ran_on, repair, set_aside, survey
from wal.segment import Segment, SegmentInfo, read_whole, segment_path

SEGMENT_BYTES_MAX: Final = 64 << 20
FRAME_BYTES_MAX: Final = 256 << 20
ALLOCATION_STEP_BYTES: Final = 4 << 20
LOCK_NAME: Final = "LOCK"

assert FRAME_BYTES_MAX <= FRAME_BYTES_LIMIT
assert HEADER_BYTES < ALLOCATION_STEP_BYTES < SEGMENT_BYTES_MAX


class Log:
    """A segmented write-ahead log in a directory of its own. Made by `Log.open`."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        lock: DirectoryLock,
        segments: list[Segment],
        segment_bytes_max: int,
        frame_bytes_max: int,
        losses: list[Loss],
    ) -> None:
        """Not for callers: use `Log.open`."""
        assert segments
        active = segments[-1]
        self.directory = directory
        self.identity = active.header.identity
        self.losses = losses
        self.stats = Stats()
        # Highest number given out; as of now all of it is durable.
        self.appended = active.last
        self._fs = fs
        self._directory_lock = lock
        self._segments = segments
        self._active = active
        self._segment_bytes_max = segment_bytes_max
        self._frame_bytes_max = frame_bytes_max
        self._committer = Committer(self.stats, active.last)
        self._lock = self._committer.lock
        self._sealed_bytes = sum(segment.end for segment in segments[:-1])
        self._closed = False

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        fs: FileSystem | None = None,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        set_damage_aside: bool = False,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> "Log":
        """Open a log, creating it if need be, and recover it.

        Args:
            directory: made if missing; belongs to the log alone.
            fs: the file system, the real one by default.
            segment_bytes_max: size at which a new segment is begun, in bytes, from 1.
            frame_bytes_max: bound on a payload, in bytes, below 4 GiB. Must never be lowered
                below a payload that is in the log.
            set_damage_aside: on damage, keep what is before it and move the rest out of the
                way, instead of refusing; see `losses`. For the operator to decide, each time.
            random_bytes: where the identity of a new log comes from.

        Raises:
            WalLocked: the directory is in use.
            WalCorrupt: something once promised is damaged; nothing was changed.
            WalFull: no disk space for a new log, or for the copy of a torn tail.
            OSError: the directory cannot be read or written.
        """
        assert segment_bytes_max >= 1
        assert 1 <= frame_bytes_max <= FRAME_BYTES_LIMIT
        fs = fs or OsFileSystem()
        fs.mkdir(directory)
        lock = _take_lock(fs, directory)
        try:
            segments, losses = _recover(
                fs, directory, lock, frame_bytes_max, set_damage_aside, random_bytes
            )
            lock.set_note(f"{os.getpid()} {fs.boot_id()}")
            return cls(fs, directory, lock, segments, segment_bytes_max, frame_bytes_max, losses)
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                raise WalFull(f"{directory}: no disk space to open the log") from error
            raise

    @property
    def written(self) -> int:
        """Highest frame number handed to the operating system; 0 for none."""
        return self._committer.written

    @property
    def durable(self) -> int:
        """Highest frame number known to survive a power cut; 0 for none."""
        return self._committer.durable

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
            raise RecordTooLarge(f"{length} bytes are over the bound of {self._frame_bytes_max}")
        size = (FRAME_HEADER_BYTES + length + 7) & -8
        committer = self._committer
        with self._lock:
            if self._closed or committer.failure is not None:
                self._refuse()
            segment = self._active
            offset = segment.end
            end = offset + size
            if end > self._segment_bytes_max or end + spare_bytes > segment.allocated:
                segment = self._make_room(size, spare_bytes)
                offset = segment.end
                end = offset + size
            number = self.appended + 1
            fields = FRAME_FIELDS.pack(FRAME_MAGIC, length, number, committer.durable)
            check = crc = crc32(fields, segment.salt)
            for part in body:
                crc = crc32(part, crc)
            padding = PADDING[-length & 7]
            crc = crc32(padding, crc)
            parts = [fields, FRAME_CHECKS.pack(crc, check), *body, padding]
            # From here on nothing can fail.
            segment.end = end
            segment.last = self.appended = number
            committer.add(segment, offset, parts, size, number, sync)
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

    def will_roll(self, nbytes: int) -> bool:
        """Whether appending a payload of `nbytes` bytes would begin a new segment."""
        assert nbytes >= 0
        return self._over(frame_bytes(nbytes))

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

    def _over(self, size: int) -> bool:
        active = self._active
        return not active.empty and active.end + size > self._segment_bytes_max

    def _make_room(self, size: int, spare_bytes: int) -> Segment:
        """The segment for a frame of `size` bytes, with space for it. Raises as append does."""
        assert spare_bytes >= 0
        active = self._active
        needed = active.end + size + spare_bytes
        try:
            if not self._over(size):
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

    def _wished(self, segment: Segment, needed: int) -> int:
        step = segment.allocated + ALLOCATION_STEP_BYTES
        return max(needed, min(step, self._segment_bytes_max))

    def _roll(self, size: int, spare_bytes: int) -> None:
        """Make the next segment the active one. On OSError nothing was changed."""
        old = self._active
        assert not old.empty
        header = SegmentHeader(old.id + 1, old.last + 1, self.identity)
        path = segment_path(self.directory, header.id)
        new = Segment(header, path, self._fs.create(path))
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

    def segments(self) -> list[SegmentInfo]:
        """All segments, oldest first; the last one is active."""
        with self._lock:
            active = self._active
            return [s.info._replace(sealed=s is not active) for s in self._segments]

    def read(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Frame]:
        """Every frame that is written by now, in order.

        Args:
            progress: called after each segment with bytes done and bytes in all.

        Raises:
            WalCorrupt: the files have changed since the log was opened.
            OSError: a file could not be read, or was dropped meanwhile.
        """
        with self._lock:
            written = self.written
            segments = [s for s in self._segments if s.first <= written and not s.empty]
            lasts = [min(s.last, written) for s in segments]
            total = sum(s.end for s in segments)
        done = 0
        for segment, last in zip(segments, lasts, strict=True):
            walk = Walk(
                read_whole(self._fs, segment.path),
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
        it: call again later. The directory is synced after each deletion, so that a crash never
        leaves a gap.

        Returns:
            Bytes freed.

        Raises:
            WalFailed, WalClosed: the log is poisoned or closed.
            OSError: a file could not be removed; it and those behind it are still part of the log.
        """
        freed = 0
        while True:
            with self._lock:
                if self._closed or self.failure is not None:
                    self._refuse()
                if len(self._segments) == 1:
                    return freed
                oldest, successor = self._segments[:2]
            if oldest.id >= segment or not successor.begun:
                return freed
            self._remove(oldest)
            freed += oldest.end

    def _remove(self, oldest: Segment) -> None:
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
        finally:
            for segment in self._segments:
                segment.close()
            self._directory_lock.release()
        if self.failure is not None and not poisoned:
            raise WalFailed(f"{self.directory}: closing failed: {self.failure}") from self.failure


def _take_lock(fs: FileSystem, directory: str) -> DirectoryLock:
    try:
        return fs.lock(os.path.join(directory, LOCK_NAME))
    except BlockingIOError as error:
        holder = (error.strerror or "").split(" ")[0] or "unknown"
        raise WalLocked(f"{directory}: in use by process {holder}") from error


def _recover(
    fs: FileSystem,
    directory: str,
    lock: DirectoryLock,
    frame_bytes_max: int,
    set_damage_aside: bool,
    random_bytes: Callable[[int], bytes],
) -> tuple[list[Segment], list[Loss]]:
    """Bring the directory into order; the last segment returned is open for appends."""
    boot = fs.boot_id()
    last_boot = lock.note().rpartition(" ")[2]
    same_boot = ran_on(lock.note(), boot)
    # From now on the note names this process, but it tells of this boot only when recovery is
    # done: an interrupted recovery must judge by the same facts when it is repeated.
    lock.set_note(f"{os.getpid()} {last_boot}")

    def examine() -> list[Finding]:
        return list(survey(fs, directory, same_boot=same_boot, frame_bytes_max=frame_bytes_max))

    findings = examine()
    losses: list[Loss] = []
    if set_damage_aside and (losses := set_aside(fs, directory, findings)):
        findings = examine()
    kept = repair(fs, directory, findings)
    if not kept:
        return [_create(fs, directory, random_bytes(IDENTITY_BYTES))], losses
    segments = []
    for finding in kept:
        assert finding.header is not None
        file = fs.open(finding.path, writable=True) if finding is kept[-1] else None
        segments.append(
            Segment.recovered(finding.header, finding.path, file, finding.last, finding.offset)
        )
    # A killed process leaves frames and names that were never synced. They count as durable
    # only after this.
    segments[-1].sync()
    fs.sync_dir(directory)
    return segments, losses


def _create(fs: FileSystem, directory: str, identity: bytes) -> Segment:
    path = segment_path(directory, 1)
    segment = Segment(SegmentHeader(1, 1, identity), path, fs.create(path))
    try:
        segment.begin()
    except BaseException:
        segment.close()
        raise
    segment.allocated = HEADER_BYTES
    return segment
