"""Calls about topics: configure, look, list, delete, read, delete records.

Owns: their parameters and what they mean. Must not know: how a call is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack

from logqueue.client.calls import Call, Listing, call, given
from logqueue.client.endpoints import (
    DELETE_RECORDS,
    DELETE_TOPIC,
    ENSURE_TOPIC,
    GET_TOPIC,
    GET_TOPIC_STATS,
    LIST_TOPICS,
    PATCH_TOPIC,
    PUT_TOPIC,
    READ_RECORDS,
)
from logqueue.shapes import (
    Durability,
    Page,
    Record,
    RecordsDeleted,
    Tombstone,
    TopicDropped,
    TopicEnsured,
    TopicEntry,
    TopicPage,
    TopicPut,
    TopicState,
    TopicStats,
    TopicType,
)

PAGE_SIZE = 1000
FOLLOW_WAIT_MS = 20_000

Match = str | Sequence[str]
"""A tag, a prefix of tags as `abc*`, or `["tag", "Eq" | "Glob", value]`."""


class ConfigFields(TypedDict, total=False):
    """What a topic can be set up to do; see the config object in the protocol."""

    type: TopicType
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Literal["old", "reject"]
    durable: bool
    durability: Durability | None
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool
    retry_backoff: Mapping[str, Any] | None
    on_exhausted: Literal["dead_letter", "drop", "hold"] | None
    on_expire: Literal["drop", "dead_letter"]
    claim_rate: Mapping[str, Any] | None
    max_in_flight: int
    paused: bool
    archive: str | None
    sqs: Mapping[str, Any] | None
    priority_ageing_ms: int
    groups: Mapping[str, Any] | None
    results: Mapping[str, Any] | None


CONFIG_FIELDS = frozenset(ConfigFields.__annotations__)


def known_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config as it is, once every field is known: a misspelt one would have no effect.

    Raises:
        TypeError: A field is unknown.
    """
    for name in config:
        if name not in CONFIG_FIELDS:
            # Only a mistake has to load this.
            from difflib import get_close_matches

            close = get_close_matches(name, CONFIG_FIELDS, 1)
            hint = (
                f"did you mean {close[0]}?" if close else f"use {', '.join(sorted(CONFIG_FIELDS))}"
            )
            raise TypeError(f"unknown config field '{name}': {hint}")
    return config


def put_topic(
    topic: str, *, if_version: str | None = None, **config: Unpack[ConfigFields]
) -> Call[TopicPut]:
    """Create a topic, or replace its whole config: fields not given are reset to their defaults.

    A program that declares its topics when it starts uses `ensure_topic`: a put would undo what
    operators have set.

    Args:
        topic: ASCII letters, digits and `. _ : -`, 255 at most, a letter or digit first.
        if_version: The `config_version` that the topic must have for the change to be made; None
            for any.
        config: `type="queue"` makes a queue; a topic with records never changes its type.

    Raises:
        ConfigChanged: `if_version`, and the config is of another version: `detail` has it.
        TypeError: A config field is unknown.
        InvalidRequest: A name or value is out of bounds.
        TopicExistsIncompatible: The topic exists and is of the other type.
        Throttled: The server has as many topics as it may have.
    """
    return call(PUT_TOPIC, topic, query=given(if_version=if_version), body=known_config(config))


def ensure_topic(topic: str, **config: Unpack[ConfigFields]) -> Call[TopicEnsured]:
    """Create a topic if it is missing; report where an existing one differs, and change nothing.

    Args:
        topic: As in `put_topic`.
        config: What a missing topic is created with. Of an existing topic, exactly these fields are
            compared; `paused` never is.

    Returns:
        `created`, and in `differs` what each differing field has and what was wanted.

    Raises:
        TypeError: A config field is unknown.
        InvalidRequest: A name or value is out of bounds.
        TopicExistsIncompatible: The topic exists and is of the other type.
        Throttled: The server has as many topics as it may have.
    """
    return call(ENSURE_TOPIC, topic, body=known_config(config))


def patch_topic(
    topic: str, *, if_version: str | None = None, **config: Unpack[ConfigFields]
) -> Call[TopicPut]:
    """Change the given config fields of a topic and leave the others; None sets null.

    Args:
        topic: Its name.
        if_version: As in `put_topic`.
        config: The fields to change.

    Raises:
        ConfigChanged: `if_version`, and the config is of another version: `detail` has it.
        TypeError: A config field is unknown, or is `paused`: see `pause` and `resume`.
        TopicNotFound: There is no such topic; a patch creates none.
    """
    if "paused" in config:
        raise TypeError("paused cannot be changed as config: call pause() or resume()")
    return call(PATCH_TOPIC, topic, query=given(if_version=if_version), body=known_config(config))


def topic(topic: str, *, touch: bool = True) -> Call[TopicState]:
    """State, counters and config of a topic, as of now.

    Args:
        touch: Whether this counts as reading it (`last_read_ts`).

    Raises:
        TopicNotFound: There is no such topic.
    """
    return call(GET_TOPIC, topic, query=given(touch=None if touch else False))


def stats(topic: str) -> Call[TopicStats]:
    """The counters of a topic, as of now; the config is left out, and it does not count as a read.

    Raises:
        TopicNotFound: There is no such topic.
    """
    return call(GET_TOPIC_STATS, topic)


def topic_page(
    *,
    prefix: str | None = None,
    cursor: str | None = None,
    page_size: int | None = None,
    touch: bool | None = None,
) -> Call[TopicPage]:
    """One page of the list of topics, in name order.

    Args:
        cursor: `next_cursor` of the page before.
        page_size: 1 to 1000; 100 when not given.
    """
    query = given(prefix=prefix or None, cursor=cursor or None, page_size=page_size, touch=touch)
    return call(LIST_TOPICS, query=query)


def topics(*, prefix: str | None = None) -> Listing[TopicEntry]:
    """Every topic with this prefix, in name order, page by page."""

    def ask(cursor: str | None) -> Call[TopicPage]:
        return topic_page(prefix=prefix, cursor=cursor, page_size=PAGE_SIZE)

    def turn(page: TopicPage) -> tuple[list[TopicEntry], Call[TopicPage] | None]:
        return page.topics, ask(page.next_cursor) if page.next_cursor else None

    return Listing(ask(None), turn)


def drop_topic(topic: str, *, if_empty: bool = False) -> Call[TopicDropped]:
    """Delete a topic with all it holds; `deleted` is false when there was none.

    After a lost reply the call is made again, and may then find nothing to delete.

    Raises:
        TopicNotEmpty: `if_empty`, and it holds records.
    """
    return call(DELETE_TOPIC, topic, query=given(if_empty=True if if_empty else None))


def diff(
    topic: str,
    from_seq: int = 0,
    *,
    limit: int | None = None,
    node: str | Sequence[str] | None = None,
    include_tags: bool = True,
    include_meta: bool = True,
    wait_ms: int = 0,
    max_batch_bytes: int | None = None,
) -> Call[Page]:
    """One page of records behind a cursor.

    Args:
        from_seq: The last seq already seen; 0 for the beginning.
        limit: Records at most, up to 1000; 256 when not given.
        node: Leaves out what these nodes wrote (see `dedupe_node`).
        wait_ms: How long to wait for news when there are none, up to 30 000.
        max_batch_bytes: Bytes at most, up to 8 MiB; 1 MiB when not given.

    Raises:
        TopicNotFound: There is no such topic.
    """
    body = given(
        from_seq=from_seq,
        limit=limit,
        node=node,
        include_tags=include_tags,
        include_meta=include_meta,
        wait_ms=wait_ms or None,
        max_batch_bytes=max_batch_bytes,
    )
    return call(READ_RECORDS, topic, body=body, wait_ms=wait_ms)


def read(
    topic: str,
    from_seq: int = 0,
    *,
    follow: bool = False,
    node: str | Sequence[str] | None = None,
    include_tags: bool = True,
    include_meta: bool = True,
    limit: int = PAGE_SIZE,
) -> Listing[Record | Tombstone]:
    """The records of a topic behind a cursor, ascending; a Tombstone takes the place of lost ones.

    Args:
        from_seq: The last seq already seen; 0 for the beginning.
        follow: Go on for ever, waiting for news at the end, and for a server that is away.
        node: Leaves out what these nodes wrote.
        limit: Records per page, 1 to 1000.

    Raises:
        TopicNotFound: There is no such topic.
    """

    def ask(at: int, wait_ms: int) -> Call[Page]:
        return diff(
            topic,
            at,
            limit=limit,
            node=node,
            include_tags=include_tags,
            include_meta=include_meta,
            wait_ms=wait_ms,
        )

    def turn(page: Page) -> tuple[list[Record | Tombstone], Call[Page] | None]:
        items: list[Record | Tombstone] = [page.tombstone] if page.tombstone is not None else []
        items.extend(page.records)
        if not follow:
            return items, None if page.caught_up else ask(page.next_from_seq, 0)
        further = ask(page.next_from_seq, FOLLOW_WAIT_MS if page.caught_up else 0)
        (request,) = further.requests
        return items, Call((replace(request, is_endless=True),), further.read)

    return Listing(ask(from_seq, 0), turn)


def delete_records(
    topic: str, *, before_seq: int | None = None, match: Match | None = None
) -> Call[RecordsDeleted]:
    """Delete the present records that fit every given selector, permanently.

    After a lost reply the call is made again, and `deleted` may then count too few.

    Args:
        before_seq: Records with a lower seq.
        match: Records with this tag; untagged ones never match.

    Raises:
        InvalidRequest: No selector, or one of no known form.
        TopicNotFound: There is no such topic.
    """
    body = given(before_seq=before_seq, match=match)
    # Later records could match when the call is made again.
    return call(DELETE_RECORDS, topic, body=body, is_repeatable=before_seq is not None)
