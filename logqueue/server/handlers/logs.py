"""Handlers of the log routes: which segments there are, and their bytes.

Owns: what of a log may be shown now, and to whom. Must not know: what is in a segment, how long
answers are sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from logqueue.api import replies
from logqueue.api.paging import page_size, read_cursor, write_cursor
from logqueue.errors import (
    InvalidRequest,
    RangeNotSatisfiable,
    SegmentNotFound,
    StorageReadOnly,
)
from logqueue.segments.index import LogName
from logqueue.server.engine.background import leases_flushed
from logqueue.server.handlers.segment_listing import SegmentQuery, list_segments
from logqueue.server.handlers.whole_log import require_everything
from logqueue.server.http.api import error_reply
from logqueue.server.http.byte_ranges import ByteRange, NoSuchBytes, part_of
from logqueue.server.http.requests import Answer, Download, HttpRequest, Reply
from logqueue.server.http.routing import serves
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service
from logqueue.server.storage.segment_store import LOG_NAMES, SegmentPlace
from wal import File

_SEGMENT = re.compile(r"(jobs|leases)-([1-9][0-9]{0,18})", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,19}", re.ASCII)
BYTES_TYPE = (b"content-type", b"application/octet-stream")


class _Ground(NamedTuple):
    """What of a log is durable.

    Attributes:
        places: Its segments; the bytes in use of each are durable.
        through: Number of the last frame.
        order: What the next transaction will get: all those with a smaller one are in it.
    """

    places: list[SegmentPlace]
    through: int
    order: int


class LogRoutes:
    """The logs themselves, for bulk readers."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics

    @serves("list_segments")
    def list(self, request: HttpRequest) -> Answer:
        """`GET /v0/log/segments`: which segments there are, and what is in each."""
        self._service.require_serving()
        require_everything(request.key)
        return request.unless_gone(self._list(request, _read_query(request)))

    async def _list(self, request: HttpRequest, query: SegmentQuery) -> Reply:
        ground = await self._ground(query.log)
        segments = self._service.require_serving().engine.segments
        stepping = self._service.stepping
        steps = list_segments(segments, query, ground.places, ground.through)
        page = await stepping.run(steps)
        members = {"log": query.log, "log_id": segments.log_id, "order": ground.order}
        rest: dict[str, object] = {"performance": msgspec.Raw(replies.performance(request.began))}
        if page.next_after is not None:
            rest = {"next_cursor": write_cursor(str(page.next_after)), **rest}
        body = b'%b,"segments":[%b],%b' % (
            replies.encode(members)[:-1],
            b",".join(page.entries),
            replies.encode(rest)[1:],
        )
        return Reply(body)

    @serves("get_segment")
    def fetch(self, request: HttpRequest) -> Answer:
        """`GET /v0/log/segments/:id`: the bytes of a segment, or some of them."""
        self._service.require_serving()
        require_everything(request.key)
        return self._fetch(request)

    async def _fetch(self, request: HttpRequest) -> Reply | Download:
        name = request.name
        found = _SEGMENT.fullmatch(name)
        if found is None:
            raise SegmentNotFound.named(name)
        log: LogName = "jobs" if found[1] == "jobs" else "leases"
        place = self._place(log, int(found[2]))
        if not place.is_sealed:
            ground = await self._ground(log)
            place = next(now for now in ground.places if now.id == place.id)
        file = await self._service.stepping.call(lambda: self._open(place))
        try:
            return self._download(request, place, file)
        except BaseException:
            file.close()
            raise

    def _place(self, log: LogName, id: int) -> SegmentPlace:
        segments = self._service.require_serving().engine.segments
        for place in segments.places(log):
            if place.id == id:
                return place
        raise SegmentNotFound.named(f"{log}-{id}")

    def _open(self, place: SegmentPlace) -> File:
        """The file of a segment, wherever it is by now.

        Raises:
            SegmentNotFound: It is gone.
        """
        engine = self._service.require_serving().engine
        for path in (place.path, engine.segments.path_of(place)):
            try:
                return engine.journal.fs.open(path)
            except FileNotFoundError:
                continue
        raise SegmentNotFound.named(place.name)

    def _download(self, request: HttpRequest, place: SegmentPlace, file: File) -> Reply | Download:
        journal = self._service.require_serving().engine.journal
        # A file that was cut by whatever accident is served as it is.
        total = min(place.bytes, file.size())
        headers = [(b"accept-ranges", b"bytes")]
        tag = b""
        if place.is_sealed:
            identity = journal.logs[place.log].identity.hex()
            tag = f'"{identity}-{place.name}-{total}"'.encode()
            headers.append((b"etag", tag))
        asked = request.header(b"range") if request.method == "GET" else None
        condition = request.header(b"if-range")
        if condition is not None and condition.strip() != tag:
            asked = None
        try:
            part = part_of(asked, total)
        except NoSuchBytes:
            file.close()
            return error_reply(
                RangeNotSatisfiable(
                    f"the range begins behind the end: there are {total} bytes", {"bytes": total}
                ),
                (b"content-range", b"bytes */%d" % total),
            )
        if part is not None:
            place_of = b"bytes %d-%d/%d" % (part.start, part.stop - 1, total)
            headers.append((b"content-range", place_of))
        metrics, stepping = self._metrics, self._service.stepping

        async def read(length: int, offset: int) -> bytes:
            data = await stepping.call(lambda: file.pread(length, offset))
            metrics.segment_bytes_served += len(data)
            return data

        start, stop = part or ByteRange(0, total)
        status = 200 if part is None else 206
        return Download(status, BYTES_TYPE, tuple(headers), start, stop, read, file.close)

    # -- durability ------------------------------------------------------------------------------

    async def _ground(self, log: LogName) -> _Ground:
        """Have all that is in a log by now synced, and wait for it.

        Raises:
            StorageReadOnly: The log has failed.
        """
        dispatcher = self._service.require_serving()
        journal, segments = dispatcher.engine.journal, dispatcher.engine.segments
        jobs = journal.jobs
        if log == "leases":
            await leases_flushed(journal)
        ground = _Ground(segments.places(log), journal.logs[log].appended, journal.order)
        # The leases log tells of topics that the jobs log has made.
        through = jobs.appended
        jobs.sync()
        await dispatcher.barrier.wait(through, through)
        if log == "leases":
            failure = journal.leases.failure
            if failure is not None or journal.leases.written < ground.through:
                raise StorageReadOnly.because(failure)
            # By another way than the log's own, which would keep the event loop waiting.
            await self._service.stepping.call(_syncing(journal.fs.open, ground.places[-1].path))
        return ground


def _syncing(open_file: Callable[..., File], path: str) -> Callable[[], None]:
    def sync() -> None:
        try:
            file = open_file(path, writable=True)
        except FileNotFoundError:
            # Sealed, and so synced, archived and dropped within this very moment.
            return
        try:
            file.sync()
        except OSError as error:
            raise StorageReadOnly.because(error) from error
        finally:
            file.close()

    return sync


def _read_query(request: HttpRequest) -> SegmentQuery:
    """The query of a listing.

    Raises:
        InvalidRequest: A parameter is none.
    """
    query = request.query
    log = query.get("log", "jobs")
    if log not in LOG_NAMES:
        raise InvalidRequest("`log` must be jobs or leases")
    names = query.get("topic")
    since = query.get("since", "0")
    after = read_cursor(query.get("cursor")) or "0"
    if not _WHOLE.fullmatch(since):
        raise InvalidRequest("`since` must be the number of a segment, such as 7 of jobs-7")
    if not _WHOLE.fullmatch(after):
        raise InvalidRequest("`cursor` is not one that this server gave out for segments")
    return SegmentQuery(
        "jobs" if log == "jobs" else "leases",
        frozenset(names.split(",")) - {""} if names else None,
        int(since),
        int(after),
        page_size(query.get("page_size")),
    )
