"""Whether a data directory is sound: every byte of its logs, then what they replay to.

Owns: the examination and its report. Must not know: how a report is shown, who keeps servers away
meanwhile. Nothing is changed on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from logqueue.cli.overlay_fs import UnchangingFileSystem
from logqueue.core.invariants import Contradiction, check
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.server.runtime import read_state
from logqueue.server.settings import Settings
from wal import (
    FRAME_BYTES_MAX,
    LOCK_NAME,
    OsFileSystem,
    RecoveryOutcome,
    WalCorrupt,
    ran_on,
    survey,
)

LOGS = ("jobs", "leases")


@dataclass(frozen=True)
class LogReport:
    """One of the two logs.

    Attributes:
        bytes: In use, preallocation not counted.
        torn: Bytes of a half-written tail; the next start cuts it, and nothing promised is in it.
    """

    name: str
    segments: int
    frames: int
    bytes: int
    torn: int
    damage: tuple[str, ...]

    @property
    def state(self) -> str:
        """In words."""
        if self.damage:
            return "DAMAGED"
        return f"good; a torn tail of {self.torn} bytes will be cut" if self.torn else "good"


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
        problems: Why it is not sound; empty if it is.
        held: What the logs replay to, by name; None when they could not be replayed.
    """

    directory: str
    logs: tuple[LogReport, ...]
    problems: tuple[str, ...] = ()
    held: dict[str, int] | None = field(default=None)

    @property
    def is_sound(self) -> bool:
        """Whether a server could start on it and lose nothing."""
        return not self.problems

    @property
    def bytes_held(self) -> int:
        """Size of both logs."""
        return sum(log.bytes for log in self.logs)

    def renamed(self, old: str, new: str) -> Report:
        """The same about a directory that has been given its name."""
        problems = tuple(problem.replace(old, new) for problem in self.problems)
        return replace(self, directory=new, problems=problems)

    def as_fields(self) -> dict[str, Any]:
        """For programs."""
        return {
            "directory": self.directory,
            "sound": self.is_sound,
            "problems": list(self.problems),
            "logs": {
                log.name: {
                    "segments": log.segments,
                    "frames": log.frames,
                    "bytes": log.bytes,
                    "torn_bytes": log.torn,
                }
                for log in self.logs
            },
            "state": self.held,
        }


def examine(directory: Path) -> Report:
    """Check a data directory. No process may write to it meanwhile."""
    logs = tuple(_examine_log(directory / name) for name in LOGS if (directory / name).is_dir())
    damage = tuple(problem for log in logs for problem in log.damage)
    if damage:
        return Report(str(directory), logs, damage)
    try:
        # A recovery may have to cut and to begin; here it does so in memory only.
        state = read_state(Settings(data_dir=str(directory)), UnchangingFileSystem())
        check(state)
    except WalCorrupt as error:
        return Report(str(directory), logs, (str(error),))
    except Contradiction as error:
        return Report(str(directory), logs, (f"the log contradicts itself: {error}",))
    except Exception as error:  # whatever it is, it would keep a server from starting
        why = f"the log cannot be replayed: {type(error).__name__}: {error}"
        return Report(str(directory), logs, (why,))
    return Report(str(directory), logs, (), _held(state))


def _examine_log(directory: Path) -> LogReport:
    files = OsFileSystem()
    note = directory / LOCK_NAME
    last = note.read_text(encoding="ascii", errors="replace").strip() if note.is_file() else ""
    try:
        findings = list(
            survey(
                files,
                str(directory),
                same_boot=ran_on(last, files.boot_id()),
                frame_bytes_max=FRAME_BYTES_MAX,
            )
        )
    except WalCorrupt as error:
        return LogReport(directory.name, 0, 0, 0, 0, (str(error),))
    return LogReport(
        directory.name,
        segments=len(findings),
        frames=sum(one.last - one.header.first + 1 for one in findings if one.header),
        bytes=sum(one.offset for one in findings),
        torn=sum(one.size - one.offset for one in findings if one.outcome is RecoveryOutcome.CUT),
        damage=tuple(str(one.error()) for one in findings if one.outcome is RecoveryOutcome.REFUSE),
    )


def _held(state: State) -> dict[str, int]:
    """What is there, counted as a server would right after its start."""
    topics = [*state.instances.values()]
    queues = [topic.queue for topic in topics if isinstance(topic, QueueTopic)]
    return {
        "topics": len(topics),
        "queues": len(queues),
        "routers": len(state.routers),
        "schedules": len(state.schedules),
        "records": sum(topic.live for topic in topics),
        "bytes": sum(topic.live_bytes for topic in topics),
        "jobs": sum(topic.live for topic in topics if isinstance(topic, QueueTopic)),
        "jobs_in_flight": sum(queue.leased for queue in queues),
        "jobs_delayed": sum(len(queue.delayed) for queue in queues),
    }
