"""Options and schemas of writes, checked: what a sink does, and which columns it takes.

Owns: names, defaults and bounds of the options of writes with the format `logqueue`, the columns
they take, and the sentence for each mistake. Must not know: HTTP, how anything is written.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.option_values import (
    api_key,
    by_name,
    one_of,
    require_one_key,
    require_topic,
    server_url,
    whole,
)

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

_PRODUCER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,199}")

TEXTS: Final = ("data", "topic", "tag", "key", "node", "meta", "group")
NUMBERS: Final = ("delay_ms", "not_before", "ttl_ms", "max_deliveries", "priority")
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
        retry_s: How long a call that the server postpones is retried.
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
    retry_s: int = PATIENCE_S_DEFAULT

    def key(self) -> str | None:
        """The key to call with.

        Raises:
            PipelineError: The file that should hold it cannot be read here.
        """
        return api_key(
            self.token,
            self.token_file,
            "; the file must be at the same path on the driver and on every executor",
        )


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
    given = by_name(options, _NAMES, _ALIASES, "writes of format logqueue", _SPARKS_OWN)
    url = server_url(given)
    require_one_key(given)
    topic = given.get("topic")
    if topic is not None:
        require_topic(topic, "topic")
    delivery = cast(Delivery, one_of(given, "mode", ("transactional", "keyed", "plain")))
    epoch = None if is_stream else whole(given, "epoch", 1, 0, 2**63 - 1)
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
        chunk_records=whole(given, "chunkRecords", CHUNK_RECORDS_DEFAULT, 1, CHUNK_RECORDS_MAX),
        chunk_bytes=whole(given, "chunkBytes", CHUNK_BYTES_DEFAULT, 1, CHUNK_BYTES_MAX),
        on_conflict=cast(OnConflict, one_of(given, "onConflict", ("keep", "replace", "reject"))),
        retry_s=whole(given, "patienceSeconds", PATIENCE_S_DEFAULT, 0, 86_400),
    )


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
