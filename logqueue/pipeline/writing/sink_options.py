"""Options and schemas of writes, checked: what a sink does, and which columns it takes.

Owns: names, defaults and bounds of the options of writes with the format `logqueue`, the columns
they take, and the sentence for each mistake. Must not know: HTTP, how anything is written.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError

Delivery = Literal["transactional", "keyed", "plain"]
OnConflict = Literal["keep", "replace", "reject"]

CHUNK_RECORDS_DEFAULT: Final = 5000
CHUNK_RECORDS_MAX: Final = 10_000
CHUNK_BYTES_DEFAULT: Final = 4 << 20
CHUNK_BYTES_MAX: Final = 32 << 20
PATIENCE_S_DEFAULT: Final = 120
BATCH_PRODUCER_SUFFIX: Final = ":spark"
"""Behind the id: a key that is limited to prefixes needs names that begin with one of them."""

_NAMES: Final = (
    "url",
    "token",
    "tokenFile",
    "topic",
    "mode",
    "writeId",
    "epoch",
    "producer",
    "chunkRecords",
    "chunkBytes",
    "onConflict",
    "patienceSeconds",
)
_ALIASES: Final = {"delivery": "mode"}
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark itself takes and passes on."""

_TOPIC: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
_PRODUCER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,199}")

TEXTS: Final = ("data", "topic", "tag", "key", "node", "meta")
NUMBERS: Final = ("delay_ms", "not_before", "ttl_ms", "max_deliveries")
COLUMNS: Final = (*TEXTS, *NUMBERS)
_COLUMN_ALIASES: Final = {"payload": "data"}
_WHOLE_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint"})


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How to write, and where to.

    Attributes:
        token: The key to call with; None for none. Left out of the repr: Spark may print that.
        token_file: A file with the key, read wherever a call is made; None for none.
        topic: Where rows go whose column `topic` says nothing; None when there is none.
        producer: The name under which epochs are committed and idempotency keys are made; None
            for a stream that names none, which uses the id of its query.
        epoch: Of a batch write; None for streams, which number their own.
        chunk_records: Records per call, 1 to 10 000.
        chunk_bytes: Bytes of records per call; a chunk ends behind the record that passes them.
        patience_s: How long a call that the server postpones is retried.
    """

    url: str
    token: str | None = field(repr=False)
    token_file: str | None
    topic: str | None
    delivery: Delivery
    producer: str | None
    epoch: int | None
    chunk_records: int = CHUNK_RECORDS_DEFAULT
    chunk_bytes: int = CHUNK_BYTES_DEFAULT
    on_conflict: OnConflict = "keep"
    patience_s: int = PATIENCE_S_DEFAULT

    def key(self) -> str | None:
        """The key to call with.

        Raises:
            PipelineError: The file that should hold it cannot be read here.
        """
        if self.token_file is None:
            return self.token or os.environ.get("LOGQUEUE_TOKEN") or None
        try:
            with open(self.token_file, encoding="utf-8") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise PipelineError(
                f"option tokenFile: {self.token_file} cannot be read: {reason}; the file must be "
                "at the same path on the driver and on every executor"
            ) from error
        if not token:
            raise PipelineError(f"option tokenFile: {self.token_file} is empty; it holds one key")
        return token


def producer_of(write_id: str) -> str:
    """The producer under which a batch write commits.

    Raises:
        PipelineError: No write can have this id.
    """
    name = write_id + BATCH_PRODUCER_SUFFIX
    if not write_id or _PRODUCER.fullmatch(name) is None:
        raise PipelineError(
            f"option writeId is {quoted(write_id)}: use 1 to 190 of A-Z a-z 0-9 . _ : - >"
        )
    return name


def read_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """The options of a write.

    Raises:
        PipelineError: One is unknown, missing, malformed, or contradicts another.
    """
    given = _named(options)
    url = given.get("url", "").strip().rstrip("/")
    if not url.startswith(("http://", "https://")):
        what = f"is {quoted(url)}" if url else "is missing"
        raise PipelineError(f"option url {what}: write where the server is, http://host:port")
    if "token" in given and "tokenFile" in given:
        raise PipelineError("options token and tokenFile contradict each other: give one of them")
    topic = given.get("topic")
    if topic is not None and _TOPIC.fullmatch(topic) is None:
        raise PipelineError(f"option topic: {quoted(topic)} is not a name of a topic")
    delivery = cast(Delivery, _word(given, "mode", ("transactional", "keyed", "plain")))
    epoch = None if is_stream else _whole(given, "epoch", 1, 0, 2**63 - 1)
    if is_stream and "epoch" in given:
        raise PipelineError("option epoch is for batch writes: a stream numbers its own epochs")
    return SinkOptions(
        url=url,
        token=given.get("token"),
        token_file=given.get("tokenFile"),
        topic=topic,
        delivery=delivery,
        producer=_stream_producer(given, delivery) if is_stream else _batch_name(given, delivery),
        epoch=epoch,
        chunk_records=_whole(given, "chunkRecords", CHUNK_RECORDS_DEFAULT, 1, CHUNK_RECORDS_MAX),
        chunk_bytes=_whole(given, "chunkBytes", CHUNK_BYTES_DEFAULT, 1, CHUNK_BYTES_MAX),
        on_conflict=cast(OnConflict, _word(given, "onConflict", ("keep", "replace", "reject"))),
        patience_s=_whole(given, "patienceSeconds", PATIENCE_S_DEFAULT, 0, 86_400),
    )


def _named(options: Mapping[str, str]) -> dict[str, str]:
    spelled = {name.lower(): name for name in _NAMES} | _ALIASES
    given: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() in _SPARKS_OWN:
            continue
        name = spelled.get(key.lower())
        if name is None:
            raise PipelineError(
                f"option {key} is unknown to writes of format logqueue; they know "
                f"{', '.join(_NAMES)}"
            )
        if given.get(name, value) != value:
            raise PipelineError(
                f"option {name} is given twice, as {quoted(given[name])} and {quoted(value)}"
            )
        given[name] = value
    return given


def _stream_producer(given: Mapping[str, str], delivery: Delivery) -> str | None:
    if "writeId" in given:
        raise PipelineError("option writeId is for batch writes: a stream takes producer instead")
    producer = given.get("producer")
    if producer is None:
        if delivery != "transactional":
            return None
        raise PipelineError(
            "option producer is missing: choose a name for this query and keep it as long as its "
            "checkpoint. The server remembers under it which micro-batch came last, so that a "
            "restart stores none twice; two queries must not share one"
        )
    if _PRODUCER.fullmatch(producer) is None:
        raise PipelineError(
            f"option producer is {quoted(producer)}: use 1 to 200 of A-Z a-z 0-9 . _ : - >"
        )
    return producer


def _batch_name(given: Mapping[str, str], delivery: Delivery) -> str:
    if "producer" in given:
        raise PipelineError("option producer is for streams: a batch write takes writeId instead")
    write_id = given.get("writeId")
    if write_id is not None:
        return producer_of(write_id)
    if delivery == "transactional":
        raise PipelineError(
            "option writeId is missing: choose a name for this write, as orders-2026-01-31, and "
            "give the same one when you run the same write again; then it is stored once. Another "
            "write needs another name; mode=plain does without, and may store rows twice"
        )
    return secrets.token_hex(8) + BATCH_PRODUCER_SUFFIX


def _word(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    word = given.get(name, words[0]).strip().lower()
    if word not in words:
        raise PipelineError(
            f"option {name} is {quoted(given[name])}: write {', '.join(words[:-1])} or {words[-1]}"
        )
    return word


def _whole(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name, str(default)).strip()
    is_number = text.isascii() and text.isdigit() and len(text) <= 19
    if not is_number or not least <= int(text) <= most:
        raise PipelineError(
            f"option {name} is {quoted(text)}: write a number from {least} to {most}"
        )
    return int(text)


def read_columns(columns: Iterable[tuple[str, str]], options: SinkOptions) -> dict[str, int]:
    """Which column of a row says what: places by name.

    Args:
        columns: Names and SQL types (`string`, `bigint`), in their order.

    Raises:
        PipelineError: One is unknown, missing or of a wrong type.
    """
    places: dict[str, int] = {}
    for place, (shown, kind) in enumerate(columns):
        name = shown.lower()
        name = _COLUMN_ALIASES.get(name, name)
        if name not in COLUMNS:
            raise PipelineError(
                f"column {shown} is unknown: a record has {', '.join(COLUMNS)}. Drop it, or "
                "put what it says into data: select(to_json(struct('*')).alias('data'))"
            )
        if name in places:
            raise PipelineError(f"two columns say {name}: {shown} is one; drop the other")
        _require_type(name, shown, kind)
        places[name] = place
    if "data" not in places:
        raise PipelineError(
            "column data is missing: a record needs one, a text of JSON; make it with "
            "select(to_json(struct('*')).alias('data'))"
        )
    if "topic" not in places and options.topic is None:
        raise PipelineError("nothing says where to: give option topic, or a column topic")
    if ("key" in places) != (options.delivery == "keyed"):
        raise PipelineError(
            "mode=keyed needs a column key: rows are identified by it"
            if options.delivery == "keyed"
            else f"column key needs mode=keyed, and this is mode={options.delivery}: "
            "drop the column, or write to a queue with mode=keyed"
        )
    return places


def _require_type(name: str, shown: str, kind: str) -> None:
    if name in TEXTS:
        if kind == "string":
            return
        ask = f"to_json({shown})" if name in ("data", "meta") else f"{shown}.cast('string')"
        raise PipelineError(
            f"column {shown} is of type {kind}: it must be a string"
            f"{', a text of JSON' if name in ('data', 'meta') else ''}; write {ask}"
        )
    if kind not in _WHOLE_TYPES and not (name == "not_before" and kind == "timestamp"):
        either = "a timestamp or a whole number (ms since the epoch)"
        raise PipelineError(
            f"column {shown} is of type {kind}: it must be "
            f"{either if name == 'not_before' else 'a whole number'}"
        )
