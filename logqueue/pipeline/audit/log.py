"""Rules about the files of a log, and the history that one pass over them gives.

Owns: which files are read, the pass, and findings about damaged bytes and missing files. Must not
know: what a history means for records and jobs, Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from logqueue import events as ev
from logqueue.pipeline.audit.findings import Finding, Rule
from logqueue.pipeline.audit.frames import JOBS, LEASES, AuditedSegment, FrameProblem, frames, shown
from logqueue.pipeline.audit.history import AuditHistory, settle
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.progress import Note
from logqueue.segments import ranges as seq_ranges
from wal import HEADER_BYTES, OsFileSystem, decode_header, segment_ids, segment_path

RULES = (
    Rule("frame_crc", "every byte of the log passes its checksum"),
    Rule("segments_joined", "the segments of a log follow one another, and none is missing"),
    Rule("orders_lost", "every transaction is in a log"),
)
_ORDERS_SHOWN: Final = 20


class _Timed(msgspec.Struct, array_like=True):
    """An event of which only the time matters."""

    tag: int
    at: int


class _Placed(msgspec.Struct, array_like=True):
    """A transaction of which only order and time matter."""

    order: int
    events: list[_Timed]


_order_of = msgspec.msgpack.Decoder(_Placed).decode


def files_of(directories: Sequence[str]) -> dict[str, list[AuditedSegment]]:
    """The segment files of both logs, ascending; of a segment that is in several places the first.

    Args:
        directories: Data directories, or archives of a log that are laid out alike.

    Raises:
        PipelineError: There is no jobs log in any of them.
    """
    found: dict[str, dict[int, AuditedSegment]] = {JOBS: {}, LEASES: {}}
    fs = OsFileSystem()
    for directory in directories:
        for log in (JOBS, LEASES):
            place = os.path.join(directory, log)
            for id in segment_ids(fs, place) if os.path.isdir(place) else []:
                found[log].setdefault(id, AuditedSegment(log, id, segment_path(place, id)))
    if not found[JOBS]:
        raise PipelineError(
            f"there is no log in {', '.join(directories)}: name a server's data directory, which "
            "has the directories jobs and leases in it"
        )
    return {log: [files[id] for id in sorted(files)] for log, files in found.items()}


def read_history(directories: Sequence[str], note: Note) -> AuditHistory:
    """Pass over both logs once.

    Raises:
        PipelineError: There is no log.
    """
    files = files_of(directories)
    history = AuditHistory(_identity(files[JOBS]))
    total = sum(map(len, files.values()))
    done = 0
    for log in (JOBS, LEASES):
        current = None
        for placed in frames(files[log]):
            if placed.file is not current:
                current = placed.file
                note(f"checking the {log} log, segment {current.id}", done / total)
                done += 1
            if placed.problem is not None:
                history.take_problem(placed.problem)
            elif placed.frame is not None:
                try:
                    if log == JOBS:
                        history.take(ev.decode(placed.frame.payload))
                    else:
                        entry = _order_of(placed.frame.payload)
                        if entry.events:
                            history.take_leases(placed, entry.order, entry.events[-1].at)
                except msgspec.MsgspecError as error:
                    detail = f"frame {placed.frame.number} is not a transaction: {error}"
                    history.take_problem(
                        FrameProblem("frame_crc", placed.file, placed.offset, detail)
                    )
    oldest = files[JOBS][0]
    settle(history, oldest.id)
    if oldest.id > history.kept_from > 0:
        detail = f"segments {history.kept_from} to {oldest.id - 1} of the jobs log are missing"
        history.problems.append(FrameProblem("segments_joined", oldest, 0, detail))
    return history


def _identity(files: Sequence[AuditedSegment]) -> str:
    for file in files:
        with open(file.path, "rb") as opened:
            _, header = decode_header(opened.read(HEADER_BYTES))
        if header is not None:
            return header.identity.hex()
    raise PipelineError(f"{files[0].path} has no header of a segment: this is not a log")


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
