"""What a source reads: the options of both formats, checked and typed.

Owns: names, aliases, defaults and bounds of the options, and the sentence for each mistake. Must
not know: pyspark, files, HTTP, how anything is read.

Names are case-insensitive. `startingOffsets` and `endingOffsets` name the first seq to read and
the first one not to read; a topic that is not named begins at the earliest and ends at the latest.
Timestamps without a zone are UTC.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.option_values import (
    api_key,
    by_name,
    one_of,
    require_one_key,
    require_topic,
    server_url,
)
from logqueue.pipeline.reading.offsets import EventsOffset, RecordsOffset

PARTITION_BYTES_DEFAULT: Final = 64 << 20
PARTITION_BYTES_MIN: Final = 64 << 10
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Events = Literal["data", "leases"]
Data = Literal["string", "binary", "none"]
Transport = Literal["auto", "segments", "pages"]
Verify = Literal["crc", "none"]
Times = Literal["dates", "all"]

_READING: Final = (
    "topics",
    "topicPattern",
    "events",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "partitionBytes",
    "failOnDataLoss",
    "data",
    "pushdown",
    "verify",
    "times",
)
OFFLINE_NAMES: Final = ("path", "archive", *_READING)
LIVE_NAMES: Final = ("url", "token", "tokenFile", "transport", *_READING)
_ALIASES: Final = {"payload": "data"}
_MS_MIN_DIGITS: Final = 5
"""A year is four digits; more than that without anything else is ms since the epoch."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of what is read.

    Attributes:
        word: "earliest" or "latest", for whatever `places` does not name.
        places: By topic, the first seq to read, or the first one not to read; -2 is the earliest
            and -1 the latest. With `events=leases` the one key is "" and the number an order.
        logs: By topic, the `log_id` that the number is of, where it was given.
        complete_from: By topic, what an offset says of what had been cleared away before.
        at_ms: A time in ms since the epoch instead, or None.
    """

    word: str
    places: Mapping[str, int] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    complete_from: Mapping[str, int] = field(default_factory=dict)
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which topics: names, or a pattern that whole names fit."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def fits(self, topic: str) -> bool:
        """Whether a topic is asked for."""
        if self.pattern is None:
            return topic in self.names
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read, the same for both formats.

    Attributes:
        max_records, max_bytes: Bounds of one micro-batch; None for none. At most one is set.
        min_partitions: Split into at least so many tasks where that is possible.
        partition_bytes: Bytes of log that one task should read.
        pushdown: Whether filters are taken over from Spark.
        verify: Whether checksums are checked while reading.
        times: Whether times that no calendar has (outside of the years 1 to 9999) are null, or as
            they are.
    """

    selection: Selection
    events: Events
    start: Bound
    end: Bound
    max_records: int | None
    max_bytes: int | None
    min_partitions: int
    partition_bytes: int
    fail_on_data_loss: bool
    data: Data
    pushdown: bool
    verify: Verify
    times: Times = "dates"


@dataclass(frozen=True, slots=True)
class OfflineOptions:
    """Where an offline source reads: a data directory, an archive directory, or both."""

    paths: tuple[str, ...]
    reading: Reading


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Where a live source reads, and how.

    Attributes:
        token: The key to call with, already read from `tokenFile`; None for none. It is left out
            of the repr, as Spark may print that.
    """

    url: str
    token: str | None = field(repr=False)
    transport: Transport
    reading: Reading


def offline(options: Mapping[str, str]) -> OfflineOptions:
    """The options of format `logqueue-wal`.

    Raises:
        PipelineError: One is unknown, missing, malformed, or contradicts another.
    """
    given = by_name(options, OFFLINE_NAMES, _ALIASES, "format logqueue-wal")
    text = given.get("path", "")
    paths = listed_names(text) + listed_names(given.get("archive", ""))
    if not paths:
        raise PipelineError(
            "option path is missing: name the server's data directory, an archive directory, or "
            "both with a comma between them"
        )
    return OfflineOptions(tuple(dict.fromkeys(paths)), _reading(given))


def live(options: Mapping[str, str]) -> LiveOptions:
    """The options of format `logqueue`. Reads the file that `tokenFile` names.

    Raises:
        PipelineError: One is unknown, missing, malformed, or contradicts another.
    """
    given = by_name(options, LIVE_NAMES, _ALIASES, "format logqueue")
    url = server_url(given)
    require_one_key(given)
    token = api_key(given.get("token"), given.get("tokenFile"))
    transport = one_of(given, "transport", ("auto", "segments", "pages"))
    reading = _reading(given)
    if transport == "pages" and reading.events == "leases":
        raise PipelineError(
            "option transport=pages brings records only: read events=leases with transport=segments"
        )
    return LiveOptions(url, token, cast(Transport, transport), reading)


def _reading(given: Mapping[str, str]) -> Reading:
    events = cast(Events, one_of(given, "events", ("data", "leases")))
    max_records = _whole(given, "maxRecordsPerTrigger", 1)
    max_bytes = _whole(given, "maxBytesPerTrigger", 1)
    if max_records is not None and max_bytes is not None:
        raise PipelineError(
            "options maxRecordsPerTrigger and maxBytesPerTrigger contradict each other: "
            "Spark bounds a micro-batch by one of them"
        )
    return Reading(
        selection=_selection(given),
        events=events,
        start=_bound(given, "starting", EARLIEST, events),
        end=_bound(given, "ending", LATEST, events),
        max_records=max_records,
        max_bytes=max_bytes,
        min_partitions=_whole(given, "minPartitions", 1) or 1,
        partition_bytes=_whole(given, "partitionBytes", PARTITION_BYTES_MIN)
        or PARTITION_BYTES_DEFAULT,
        fail_on_data_loss=_yes(given, "failOnDataLoss", True),
        data=cast(Data, one_of(given, "data", ("string", "binary", "none"))),
        pushdown=_yes(given, "pushdown", False),
        verify=cast(Verify, one_of(given, "verify", ("crc", "none"))),
        times=cast(Times, one_of(given, "times", ("dates", "all"))),
    )


def _selection(given: Mapping[str, str]) -> Selection:
    names, pattern = given.get("topics"), given.get("topicPattern")
    if (names is None) == (pattern is None):
        raise PipelineError(
            "give exactly one of the options topics (names with commas between them) and "
            "topicPattern (a regular expression that whole names fit)"
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise PipelineError(
                f"option topicPattern is not a regular expression: {error}; '.*' takes all topics"
            ) from error
        return Selection(pattern=pattern)
    listed = listed_names(names or "")
    if not listed:
        raise PipelineError("option topics names no topic; write topics=a,b or topicPattern=.*")
    for name in listed:
        require_topic(name, "topics", "; for a pattern use topicPattern")
    return Selection(names=tuple(sorted(set(listed))))


def _bound(given: Mapping[str, str], side: str, word: str, events: Events) -> Bound:
    offsets, timestamp = f"{side}Offsets", f"{side}Timestamp"
    if offsets in given and timestamp in given:
        raise PipelineError(
            f"options {offsets} and {timestamp} contradict each other: give one of them"
        )
    if timestamp in given:
        return Bound(word, at_ms=parse_time(given[timestamp], timestamp))
    text = given.get(offsets, word).strip()
    if text.lower() in (EARLIEST, LATEST):
        return Bound(text.lower())
    return _explicit(text, offsets, word, events)


def _explicit(text: str, name: str, word: str, events: Events) -> Bound:
    """A bound that is given as numbers: plain ones, or the offset of a stream."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise PipelineError(
            f"option {name} is {quoted(text)}: write earliest, latest, or JSON as "
            '{"orders": 350000}'
        ) from error
    if isinstance(value, dict) and "v" in value:
        return _versioned(value, name, word, events)
    if events == "leases":
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise PipelineError(
                f"option {name} with events=leases is one order of the log, a number from 0, "
                "or the offset of a stream; topics do not have offsets of their own there"
            )
        return Bound(word, {"": value})
    places = _places(value)
    if places is None:
        raise PipelineError(
            f'option {name} must map topics to whole numbers, as {{"orders": 350000}}; '
            "-2 is the earliest and -1 the latest"
        )
    return Bound(word, places)


def _places(value: Any) -> dict[str, int] | None:
    if not isinstance(value, dict):
        return None
    for place in value.values():
        if isinstance(place, bool) or not isinstance(place, int) or place < -2:
            return None
    return {str(topic): place for topic, place in value.items()}


def _versioned(value: Any, name: str, word: str, events: Events) -> Bound:
    try:
        if events == "leases":
            whole = EventsOffset.parse(value)
            return Bound(word, {"": whole.next}, {"": whole.log}, {"": whole.complete_from})
        places = RecordsOffset.parse(value).topics
    except PipelineError as error:
        raise PipelineError(f"option {name}: {error}") from error
    return Bound(
        word,
        {topic: place.next for topic, place in places.items()},
        {topic: place.log for topic, place in places.items()},
        {topic: place.complete_from for topic, place in places.items()},
    )


def parse_time(text: str, name: str) -> int:
    """A time in ms since the epoch, from ISO 8601 or from ms.

    Args:
        name: The option that holds it, for the message.

    Raises:
        PipelineError: It is neither.
    """
    text = text.strip()
    if (text.isdecimal() and text.isascii() and len(text) >= _MS_MIN_DIGITS) or text == "0":
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise PipelineError(
            f"option {name} is {quoted(text)}: write ISO 8601 as 2026-01-31T09:30:00Z, "
            "or ms since the epoch"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def listed_names(text: str) -> list[str]:
    """The parts of a text with commas between them, without blanks around them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _yes(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise PipelineError(f"option {name} is {quoted(given[name])}: write true or false")
    return value == "true"


_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _whole(given: Mapping[str, str], name: str, lowest: int) -> int | None:
    """A whole number, bytes perhaps with a unit; None when it is not given."""
    text = given.get(name)
    if text is None:
        return None
    units = "kmg" if "Bytes" in name else ""
    match = re.fullmatch(rf"([0-9]{{1,18}})([{units or 'x'}]?)i?b?", text.strip().lower())
    value = int(match[1]) * _SIZES.get(match[2], 0) if match else -1
    if value < lowest:
        what = "bytes, as 67108864 or 64m," if units else "a whole number"
        raise PipelineError(f"option {name} is {quoted(text)}: write {what} from {lowest}")
    return value


_stream_refusals: Final[dict[str, Callable[[Reading], bool]]] = {
    "startingOffsets=latest": lambda reading: (
        reading.start.word == LATEST or any(place == -1 for place in reading.start.places.values())
    ),
    "startingTimestamp": lambda reading: reading.start.at_ms is not None,
}


def require_stream(reading: Reading) -> None:
    """Refuse options that a stream cannot keep its promise with.

    Raises:
        PipelineError: The start moves each time it is requested, or an end is given.
    """
    for name, applies in _stream_refusals.items():
        if applies(reading):
            raise PipelineError(
                f"option {name} cannot start a stream: Spark asks for the start more than once, "
                "and whatever came in between would be lost; fix it first with "
                "logqueue.spark.resolve(...) and pass its answer as startingOffsets"
            )
    if reading.end != Bound(LATEST):
        raise PipelineError(
            "options endingOffsets and endingTimestamp are for batch reads: a stream has no end; "
            "trigger(availableNow=True) stops at the end there is at its start"
        )


def require_batch(reading: Reading) -> None:
    """Refuse options that say nothing about a batch.

    Raises:
        PipelineError: It would start where the log ends, or end where it begins.
    """
    if reading.start.word == LATEST or -1 in reading.start.places.values():
        raise PipelineError(
            "option startingOffsets: a batch that starts at latest reads nothing; write earliest, "
            "JSON, or startingTimestamp"
        )
    if reading.end.word == EARLIEST or -2 in reading.end.places.values():
        raise PipelineError(
            "option endingOffsets: a batch that ends at earliest reads nothing; write latest or "
            "JSON"
        )
