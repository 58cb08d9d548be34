"""How far a stream has read: offsets as JSON, and the arithmetic of one micro-batch.

Owns: the two forms of offsets, their fair and deterministic division under a bound, and the error
for lost data. Must not know: pyspark, segments, HTTP.

    records  {"v":1,"topics":{"orders":{"log":"<log_id>","next":350000}}}
    events   {"v":1,"log":"<identity>","next":<order>,"of":[[1,4],[7,7]]}

`next` is the first seq, or the first order of the log, that was not read yet. `of` are the queues
whose events were read up to there, as ranges of their numbers; queues that were selected once and
are not now follow in `others`, with an order of their own. Keys are sorted, as Spark compares the
text. A place may also carry `"told"`, here `complete_from`: the log was
complete from that seq on when the stream first saw the topic. What was dropped below it before had
no reader yet, so it is not a loss; see `logqueue.pipeline.reading.available`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from logqueue.pipeline.errors import PipelineError

VERSION: Final = 1


class DataLossError(PipelineError):
    """Records or events to be read are not in the log any longer."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far one topic was read.

    Attributes:
        log: The `log_id` of the topic.
        next: First seq not yet read, from 1.
        complete_from: First seq from which the log was complete when this reader first saw it.
    """

    log: str
    next: int
    complete_from: int = 0


@dataclass(frozen=True, slots=True)
class RecordsOffset:
    """How far a stream of records has read, by topic."""

    topics: Mapping[str, Place]

    def json(self) -> dict[str, Any]:
        """Itself as plain values, keys sorted."""
        topics: dict[str, dict[str, Any]] = {}
        for name in sorted(self.topics):
            place = self.topics[name]
            topics[name] = {"log": place.log, "next": place.next}
            if place.complete_from > 1:
                topics[name]["told"] = place.complete_from
        return {"v": VERSION, "topics": topics}

    @classmethod
    def parse(cls, value: Any) -> RecordsOffset:
        """Read what `json` made.

        Raises:
            PipelineError: It is something else.
        """
        topics = value.get("topics") if isinstance(value, dict) else None
        if not isinstance(topics, dict) or value.get("v") != VERSION:
            raise PipelineError(_refusal(value, "records"))
        return cls({str(name): _place(value, place) for name, place in topics.items()})


@dataclass(frozen=True, slots=True)
class EventsOffset:
    """How far a stream of lease events has read: up to an order of the whole log.

    Attributes:
        log: The identity of the log.
        next: First order not yet read, from 0.
        complete_from: As of a Place, in orders.
        of: Numbers of the queues that were read up to there; None, as in offsets of earlier
            versions, for all that are selected.
        others: Queues that were read up to another order.
    """

    log: str
    next: int
    complete_from: int = 0
    of: tuple[tuple[int, int], ...] | None = None
    others: tuple[tuple[tuple[tuple[int, int], ...], int], ...] = ()

    def json(self) -> dict[str, Any]:
        """Itself as plain values."""
        value: dict[str, Any] = {"v": VERSION, "log": self.log, "next": self.next}
        if self.complete_from > self.next:
            value["told"] = self.complete_from
        if self.of is not None:
            value["of"] = [list(pair) for pair in self.of]
        if self.others:
            value["others"] = [
                {"next": next, "of": [list(pair) for pair in of]} for of, next in self.others
            ]
        return value

    @classmethod
    def parse(cls, value: Any) -> EventsOffset:
        """Read what `json` made.

        Raises:
            PipelineError: It is something else.
        """
        if isinstance(value, dict) and value.get("v") == VERSION:
            log, next, complete = value.get("log"), value.get("next"), value.get("told", 0)
            if isinstance(log, str) and _is_whole(next) and _is_whole(complete):
                with suppress(TypeError, ValueError, KeyError):
                    of = _queues(value["of"]) if "of" in value else None
                    others = ((_queues(o["of"]), int(o["next"])) for o in value.get("others", ()))
                    return cls(log, next, complete, of, tuple(others))
        raise PipelineError(_refusal(value, "lease events"))


def _queues(value: Any) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(last)) for first, last in value)


def _place(whole: Any, place: Any) -> Place:
    if isinstance(place, dict):
        log, next, complete = place.get("log"), place.get("next"), place.get("told", 0)
        if isinstance(log, str) and _is_whole(next) and _is_whole(complete):
            return Place(log, next, complete)
    raise PipelineError(_refusal(whole, "records"))


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refusal(value: Any, of: str) -> str:
    shown = json.dumps(value, default=str)[:200]
    return (
        f"{shown} is not an offset of {of} (version {VERSION}): was the checkpoint written with "
        "other options (events) or by a newer version? Use a new checkpoint directory"
    )


def share(total: int, wanted: Sequence[int], turn: int) -> list[int]:
    """Divide a bound fairly: no share is larger than wanted, nor smaller than another's that wants
    more.

    A pure function of its arguments, so that a repeated micro-batch is the same one.

    Args:
        total: What there is to give, from 0.
        wanted: By reader, how much it could take.
        turn: Who is the first to get what does not divide evenly, counted round the readers.

    Returns:
        What each gets; together `min(total, sum(wanted))`.
    """
    shares = [0] * len(wanted)
    left = min(total, sum(wanted))
    open_ = [index for index, want in enumerate(wanted) if want > 0]
    while left >= len(open_) > 0:
        each = left // len(open_)
        for index in open_:
            more = min(each, wanted[index] - shares[index])
            shares[index] += more
            left -= more
        open_ = [index for index in open_ if shares[index] < wanted[index]]
    if open_:
        begin = turn % len(wanted)
        for index in sorted(open_, key=lambda index: (index - begin) % len(wanted))[:left]:
            shares[index] += 1
    return shares
