"""Rules about the files of a log, and the history that one pass over them gives.

Owns: which segments are read, the pass over them as tasks, and findings about damaged bytes and
missing files. Must not know: what a history means for records and jobs, engines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

from logqueue.pipeline.audit.findings import Finding, Rule
from logqueue.pipeline.audit.frames import JOBS, LEASES, AuditedSegment, FrameProblem, shown
from logqueue.pipeline.audit.history import AuditHistory, settle
from logqueue.pipeline.audit.steps import SegmentSteps, steps_of
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.progress import Note
from logqueue.segments import ranges as seq_ranges
from wal import OsFileSystem, segment_ids, segment_path

RULES = (
    Rule("frame_crc", "every byte of the log passes its checksum"),
    Rule("segments_joined", "the segments of a log follow one another, and none is missing"),
    Rule("orders_lost", "every transaction is in a log"),
)
_ORDERS_SHOWN: Final = 20
_TAIL_READS_MAX: Final = 5
_TAIL_WAIT_S: Final = 0.05
WRITE_WAIT_S: Final = 0.2
"""Within this time, a server that runs hands to the system what it has: it does every 100 ms."""


class SegmentSource(Protocol):
    """One segment of a log that any task can read."""

    @property
    def file(self) -> AuditedSegment:
        """Which one."""
        ...

    def read(self) -> bytes:
        """All its bytes.

        Raises:
            PipelineError: It cannot be read.
        """


@dataclass(frozen=True, slots=True)
class SegmentOnDisk:
    """A segment in a directory."""

    file: AuditedSegment

    def read(self) -> bytes:
        """See `SegmentSource`."""
        try:
            with open(self.file.path, "rb") as opened:
                return opened.read()
        except FileNotFoundError as error:
            raise PipelineError(
                f"{self.file.path} was deleted while it was read: try again, or audit a log "
                "archive, which keeps it"
            ) from error
        except OSError as error:
            raise PipelineError(f"{self.file.path} cannot be read: {error.strerror}") from error


class AuditedFile(NamedTuple):
    """A segment to read, and whether it is the newest of its log."""

    source: SegmentSource
    is_last: bool


class WriteWatch:
    """Sees whether a server is writing to the files of a log."""

    def __init__(self, sources: Sequence[SegmentSource]) -> None:
        """Look at the newest files of a log, before any of it is read."""
        newest: dict[str, str] = {}
        for source in sources:
            if isinstance(source, SegmentOnDisk):
                newest[source.file.log] = source.file.path
        self._places = [*newest.values(), *map(os.path.dirname, newest.values())]
        self._states = self._states_now()
        changed = max((ns for _, ns in filter(None, self._states)), default=0) / 1e9
        age = max(time.time() - changed, 0)
        self._until = time.monotonic() + WRITE_WAIT_S - age

    def is_written(self) -> bool:
        """Whether they have changed since. Waits until a server would have written what it had."""
        time.sleep(max(self._until - time.monotonic(), 0))
        return self._states_now() != self._states

    def _states_now(self) -> list[tuple[int, int] | None]:
        states: list[tuple[int, int] | None] = []
        for place in self._places:
            try:
                state = os.stat(place)
                states.append((state.st_size, state.st_mtime_ns))
            except OSError:
                states.append(None)
        return states


RunTasks = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function with each item, wherever that is done; results come in the order of items."""


def files_of(directories: Sequence[str]) -> list[SegmentSource]:
    """The segment files of both logs, ascending; of a segment that is in several places the first.

    Args:
        directories: Data directories, or archives of a log that are laid out alike.
    """
    found: dict[tuple[int, int], SegmentSource] = {}
    fs = OsFileSystem()
    for directory in directories:
        for rank, log in enumerate((JOBS, LEASES)):
            place = os.path.join(directory, log)
            for id in segment_ids(fs, place) if os.path.isdir(place) else []:
                file = AuditedSegment(log, id, segment_path(place, id))
                found.setdefault((rank, id), SegmentOnDisk(file))
    return [source for _, source in sorted(found.items(), key=itemgetter(0))]


def read_history(
    sources: Sequence[SegmentSource], where: Sequence[str], run: RunTasks, note: Note
) -> AuditHistory:
    """Pass over both logs once.

    Args:
        sources: The segments of both logs, of each ascending.
        where: What was named, for people.
        run: Does the work for each segment.
        note: Called at each segment.

    Raises:
        PipelineError: There is no log.
    """
    jobs = [source for source in sources if source.file.log == JOBS]
    leases = [source for source in sources if source.file.log == LEASES]
    if not jobs:
        raise PipelineError(
            f"there is no log in {', '.join(where)}: name a server's data directory, which "
            "has the directories jobs and leases in it"
        )
    tasks = [AuditedFile(source, source is log[-1]) for log in (jobs, leases) for source in log]
    history: AuditHistory | None = None
    for done, segment in enumerate(run(steps_in, tasks), 1):
        if history is None:
            history = AuditHistory("")
        if not history.identity and segment.identity:
            history.identify(segment.identity)
        note(f"checking the {segment.file.log} log, segment {segment.file.id}", done / len(tasks))
        history.take(segment)
    assert history is not None
    if not history.identity:
        raise PipelineError(f"{jobs[0].file.path} has no header of a segment: this is not a log")
    oldest = jobs[0].file
    settle(history, oldest.id)
    if oldest.id > history.kept_from > 0:
        detail = f"segments {history.kept_from} to {oldest.id - 1} of the jobs log are missing"
        history.problems.append(FrameProblem("segments_joined", oldest, 0, detail))
    return history


def steps_in(task: AuditedFile) -> SegmentSteps:
    """What a segment says. Of a log that is being written, the last write may be read in part:
    then the file is read again, until it stays as it is."""
    data = task.source.read()
    found = steps_of(task.source.file, data, is_last=task.is_last)
    for _ in range(_TAIL_READS_MAX):
        if not any(problem.is_tail for problem in found.problems()):
            break
        time.sleep(_TAIL_WAIT_S)
        before, data = data, task.source.read()
        if data == before:
            break
        found = steps_of(task.source.file, data, is_last=task.is_last)
    return found


def findings(history: AuditHistory, directories: Sequence[str]) -> Iterator[Finding]:
    """Damaged bytes, missing files, and transactions that are in no log."""
    for problem in history.problems:
        yield _damage(history, problem, directories)
    lost = history.lost_orders()
    if lost and history.is_whole:
        yield Finding(
            "orders_lost",
            "info",
            None,
            None,
            None,
            f"{seq_ranges.count(lost)} transactions are in no log: the server ended hard before "
            "they were written, or the disk was full; nothing that was promised is among them "
            "unless another rule says so",
            {"orders": lost[:_ORDERS_SHOWN]},
        )


def _damage(history: AuditHistory, problem: FrameProblem, directories: Sequence[str]) -> Finding:
    topics = {
        history.instances[number].name: list(range_)
        for number, range_ in sorted(problem.lost.items())
    }
    topic, first, last = None, None, None
    if len(topics) == 1:
        [(topic, (first, last))] = topics.items()
    detail = problem.detail
    if problem.is_tail:
        detail += "; the last write did not reach the disk whole, the next start cuts it off"
    return Finding(
        problem.rule,
        "info" if problem.is_tail else "error",
        topic,
        first,
        last,
        detail,
        {
            "file": shown(problem.file.path, directories),
            "segment": f"{problem.file.log}-{problem.file.id}",
            "offset": problem.offset,
            "seqs": topics,
        },
    )
