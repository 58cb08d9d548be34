"""Calls about routers and about the server itself.

Owns: their parameters and what they mean. Must not know: how a call is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logqueue.client.calls import (
    Answer,
    Call,
    CallRequest,
    Listing,
    call,
    given,
    read_shape,
    request,
)
from logqueue.client.endpoints import (
    BACKUP,
    DELETE_ROUTER,
    GET_ROUTER,
    HEALTH,
    LIST_ROUTERS,
    METRICS,
    PROMOTE,
    PUT_LOG_LEVEL,
    PUT_ROUTER,
    READY,
    REPLICA,
    SERVER,
)
from logqueue.client.topic_calls import PAGE_SIZE, Match
from logqueue.shapes import (
    Guarantee,
    Health,
    LogLevelChanged,
    LogLevelName,
    Ready,
    ReplicaStatus,
    ReplicaTakeover,
    Router,
    RouterDropped,
    RouterEntry,
    RouterPage,
    ServerState,
)

BACKUP_SILENCE_MS_MAX = 60_000
"""How long a server may take to begin with a backup, or between two parts of it."""

# -- routers -------------------------------------------------------------------------------------


def put_router(
    router: str,
    source: str,
    dest: str,
    *,
    filter: Match | None = None,
    preserve_node: bool = True,
    preserve_tag: bool = True,
    create_dest: bool = True,
    allow_cycle: bool = False,
    guarantee: Guarantee = "at_least_once",
) -> Call[Router]:
    """Create a router that copies new records of one topic to another, or replace its options.

    Args:
        filter: Forward only these tags; untagged records then never go.
        preserve_node: Copies keep `$node`.
        preserve_tag: Copies keep `$tag`.
        create_dest: Create `dest` when it is absent; `source` always is.
        allow_cycle: Allow it to close a loop.

    Raises:
        InvalidRequest: A name or the filter is invalid, or source and dest are the same.
        TopicNotFound: `dest` is absent and `create_dest` false.
        TopicExistsIncompatible: It exists with another source or dest, or `dest` is already fed
            by another source.
        RouterCycle: It would close a loop.
        Throttled: The server has as many routers as it may have.
    """
    body = given(
        source=source,
        dest=dest,
        filter=filter,
        preserve_node=preserve_node,
        preserve_tag=preserve_tag,
        create_dest=create_dest,
        allow_cycle=allow_cycle,
        guarantee=guarantee,
    )
    return call(PUT_ROUTER, router, body=body)


def router(router: str) -> Call[Router]:
    """A router, with how many records it has copied.

    Raises:
        RouterNotFound: There is no such router.
    """
    return call(GET_ROUTER, router)


def router_page(
    *,
    prefix: str | None = None,
    source: str | None = None,
    dest: str | None = None,
    cursor: str | None = None,
    page_size: int | None = None,
) -> Call[RouterPage]:
    """One page of the list of routers, in name order.

    Args:
        source: Only routers from this topic.
        dest: Only routers to this topic.
        cursor: `next_cursor` of the page before.
        page_size: 1 to 1000; 100 when not given.
    """
    query = given(
        prefix=prefix or None,
        source=source,
        dest=dest,
        cursor=cursor or None,
        page_size=page_size,
    )
    return call(LIST_ROUTERS, query=query)


def routers(
    *, prefix: str | None = None, source: str | None = None, dest: str | None = None
) -> Listing[RouterEntry]:
    """Every router that fits, in name order, page by page; see `router_page`."""

    def ask(cursor: str | None) -> Call[RouterPage]:
        return router_page(
            prefix=prefix, source=source, dest=dest, cursor=cursor, page_size=PAGE_SIZE
        )

    def turn(page: RouterPage) -> tuple[list[RouterEntry], Call[RouterPage] | None]:
        return page.routers, ask(page.next_cursor) if page.next_cursor else None

    return Listing(ask(None), turn)


def drop_router(router: str) -> Call[RouterDropped]:
    """Delete a router; its topics and the copies it made stay.

    After a lost reply the call is made again, and may then find nothing to delete.
    """
    return call(DELETE_ROUTER, router)


# -- the server ----------------------------------------------------------------------------------


def health() -> Call[Health]:
    """Whether the process is up; asked once, never repeated."""
    return call(HEALTH, is_probe=True)


def ready() -> Call[Ready]:
    """Whether the server takes calls; asked once, never repeated.

    Raises:
        NotReady: It is still replaying its log; `detail` says how far it is.
    """
    return call(READY, is_probe=True)


def server() -> Call[ServerState]:
    """The server as its operator sees it: health in words, disk, memory, limits, slow requests.

    Raises:
        Forbidden: The key is limited to name prefixes.
    """
    return call(SERVER)


def set_log_level(level: LogLevelName, *, for_ms: int | None = None) -> Call[LogLevelChanged]:
    """Change how much the server logs. `debug` logs every request. For a client with the URL of
    that server alone.

    Args:
        for_ms: After so long, 7 days at most, the level of the start returns; None for never.

    Raises:
        InvalidRequest: There is no such level, or the time is out of range.
        Forbidden: The key is limited to name prefixes.
        ValueError: The client has several URLs.
    """
    return call(PUT_LOG_LEVEL, body=given(level=level, for_ms=for_ms), names_server=True)


def backup_request() -> CallRequest:
    """The request for a backup; see `AsyncClient.backup`."""
    return request(BACKUP, accept="application/x-tar")


def replica() -> Call[ReplicaStatus]:
    """The part of the server in the replica of its log: who writes, how far it is behind."""
    return call(REPLICA)


def promote(*, force: bool = False) -> Call[ReplicaTakeover]:
    """Make a standby the writer: it asks the writer to hand over, and takes over. Asked once, by a
    client with the URL of that standby alone.

    Args:
        force: Do not ask the writer: what it has not committed to the replica is lost.

    Raises:
        NotWriter: The writer did not hand over, or another server was faster.
        ValueError: The client has several URLs.
    """
    return call(PROMOTE, body={"force": force}, is_probe=True, names_server=True)


def metrics() -> Call[dict[str, Any]]:
    """The server's metrics as an object."""

    def read(answers: Sequence[Answer]) -> dict[str, Any]:
        return read_shape(answers[0], dict[str, Any])

    return Call((request(METRICS),), read)


def metrics_text() -> Call[str]:
    """The server's metrics in Prometheus' text format."""
    return Call((request(METRICS, accept="text/plain"),), lambda answers: answers[0].body.decode())
