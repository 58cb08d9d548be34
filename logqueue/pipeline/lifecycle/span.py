"""The range of history that a run reads: where it begins and ends, and which queues are in it.

Owns: what a range is, and the file `_range.json` beside the tables made from it. Must not know: how
an engine finds it, what is made of the history.

"Now" of every table is the end of its range, never the present time: the same range gives the same
rows.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from logqueue.pipeline.errors import PipelineError

RANGE_FILE = "_range.json"
"""Spark and pyarrow pass over names that begin with an underscore."""


@dataclass(frozen=True)
class QueueSpan:
    """What a range holds of one queue.

    Attributes:
        first_seq: Lowest seq of a record; 0 when there is none.
        floors: How many `trimmed` events there are.
    """

    log_id: str
    topic: str
    first_seq: int
    records: int
    events: int
    floors: int


@dataclass(frozen=True)
class Span:
    """A range of history.

    Attributes:
        start, end: Lowest and highest time of a record or event, ms since the epoch; `end` may
            have been given instead. Both 0 when there is nothing.
        queues: Topics that are queues, by name and log.
        others: How many topics are none: nothing ever happened to their records.
    """

    start: int
    end: int
    queues: tuple[QueueSpan, ...]
    others: int = 0

    def description(self) -> dict[str, Any]:
        """As a summary tells it."""
        return {"start": moment_text(self.start), "end": moment_text(self.end)}

    def since(self, start: int) -> Span:
        """The same with an earlier beginning."""
        return replace(self, start=min(start, self.start) if start else self.start)

    def write(self, folder: str) -> None:
        """Write it to a directory, for readers of the tables there."""
        text = json.dumps({"v": 1, **self.description(), "span": asdict(self)}, indent=1)
        part = os.path.join(folder, RANGE_FILE + ".part")
        with open(part, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(part, os.path.join(folder, RANGE_FILE))

    @classmethod
    def read(cls, folder: str) -> Span | None:
        """The range noted in a directory; None when there is none.

        Raises:
            PipelineError: It does not read.
        """
        path = os.path.join(folder, RANGE_FILE)
        try:
            with open(path, encoding="utf-8") as file:
                description = json.load(file)["span"]
            queues = tuple(QueueSpan(**queue) for queue in description.pop("queues"))
            return cls(**description, queues=queues)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise PipelineError(
                f"{path} does not read ({error}); remove the directory and run again"
            ) from error

    @staticmethod
    def forget(folder: str) -> None:
        """Nothing in a directory is to be trusted until a range is noted again."""
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, RANGE_FILE)
        if os.path.exists(path):
            os.remove(path)


def moment_text(at: int) -> str:
    """A time as text: `2026-01-31T12:00:00.000Z`; empty for none."""
    if not at:
        return ""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
