"""The range of history that a run reads: where it begins and ends, and which queues are in it.

Owns: what a range is, and the file `_range.json` beside the tables made from it. Must not know: how
an engine finds it, what is made of the history.

"Now" of every table is the end of its range, never the present time: the same range gives the same
rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.publishing import Published, TableFile, Target, published
from logqueue.pipeline.storage.opening import open_tree

TABLES = ("jobs", "attempts")
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

    def facts(self) -> dict[str, Any]:
        """As the tables made from it state it."""
        return {"v": 1, **self.description(), "span": asdict(self)}

    @classmethod
    def of(cls, version: Published) -> Span:
        """The range that a version of tables states.

        Raises:
            PipelineError: It does not read.
        """
        try:
            description = dict(version.facts["span"])
            queues = tuple(QueueSpan(**queue) for queue in description.pop("queues"))
            return cls(**description, queues=queues)
        except (ValueError, TypeError, KeyError) as error:
            raise PipelineError(
                f"the range of version {version.version} of the tables does not read ({error}); "
                "remove the directory and run again"
            ) from error

    @classmethod
    def read(cls, folder: str) -> Span | None:
        """The range of the tables at a place; None when there are none.

        Raises:
            PipelineError: It does not read.
        """
        version = published(open_tree(folder))
        return None if version is None else cls.of(version)


def publish_tables(
    target: Target, span: Span, files: Iterable[TableFile], keep: Iterable[TableFile] = ()
) -> None:
    """Publish staged files of `jobs` and `attempts` with the range that they are made from.

    Args:
        keep: Files of the version before that are in this one, too.
    """
    text = json.dumps(span.facts(), indent=1) + "\n"

    def fill(path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    noted = target.staging.put(RANGE_FILE, fill)
    # Other jobs may publish at the same place.
    others = [
        file
        for file in (target.before.files if target.before is not None else ())
        if file.table not in (*TABLES, RANGE_FILE)
    ]
    target.publish([*files, noted], tables=TABLES, keep=[*keep, *others], facts=span.facts())


def moment_text(at: int) -> str:
    """A time as text: `2026-01-31T12:00:00.000Z`; empty for none."""
    if not at:
        return ""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
