# Generated from asynchronous.py by tools/unasync.py. Do not edit: change that file, then run
# `make generate`.
"""The client that blocks.

Owns: making calls on kept connections, with retries, and the loops behind lists, streams and long
writes. Must not know: what any route is about; the functions named in the table at the end describe
that for both clients.
"""

from __future__ import annotations

import os
import random as chances
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from logqueue.client import (
    appending,
    background_calls,
    batch_calls,
    connecting,
    following,
    letter_calls,
    live_stats,
    log_calls,
    producer_calls,
    queue_calls,
    schedule_calls,
    server_calls,
    settling,
    topic_calls,
)
from logqueue.client.backoff import NO_RETRIES, STREAM_BACKOFF, Attempts, Backoff, StreamRetry
from logqueue.client.calls import Answer, Call, CallRequest, Listing, describe, reading
from logqueue.client.failures import ConnectionFailed
from logqueue.client.following import Following, Working
from logqueue.client.lazy import httpx
from logqueue.client.sending import BatchSender, chunks
from logqueue.client.servers import Servers
from logqueue.client.sse import events_of, retry_ms_of
from logqueue.errors import LogqueueError
from logqueue.shapes import Appended

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

P = ParamSpec("P")
T = TypeVar("T")


class BlockingCalls:
    """Makes calls. See Client."""

    def __init__(
        self,
        url: connecting.Urls | None = None,
        token: str | None = None,
        *,
        node: str | None = None,
        timeout_s: float = connecting.TIMEOUT_S,
        connect_timeout_s: float = connecting.CONNECT_TIMEOUT_S,
        backoff: Backoff | None = None,
        reconnect: Backoff | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        chance: Callable[[], float] = chances.random,
    ) -> None:
        """Nothing is sent yet.

        Args:
            url: Where the server is; LOGQUEUE_URL, else http://127.0.0.1:4000. Several, in a list
                or with commas between them, are the servers of one log: calls go to the one that
                is the writer, also after another one has taken over.
            token: The key to call with; LOGQUEUE_TOKEN, else none.
            node: The name under which leases are held where a call gives none; one of its own for
                each client when not given.
            timeout_s: How long a reply may take, beyond what its call asks to wait, in seconds.
            connect_timeout_s: How long a connection may take to be made, in seconds.
            backoff: How calls are retried: for 40 s in all where that is safe, when not given.
            reconnect: How streams are opened again after they broke; for ever, when not given.
            transport: What carries requests, in place of the network.
            clock: Seconds that only grow; for tests.
            sleep: Waits for seconds; for tests.
            chance: Numbers from 0.0 to 1.0, for jitter; for tests.

        Raises:
            ValueError: A URL is none, or the token cannot go into a header.
        """
        self._address = connecting.Address.of(url, token, node, timeout_s, connect_timeout_s)
        self._servers = Servers(self._address.urls)
        self._backoff = backoff or Backoff()
        self._reconnect = reconnect or STREAM_BACKOFF
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._transport = transport
        self._connect()
        self._working: dict[int, Working] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._connections().close()

    def _connect(self) -> None:
        self._http = httpx.Client(**self._address.settings(), transport=self._transport)
        self._pid = os.getpid()

    def _connections(self) -> httpx.Client:
        """The connections of this process: those of its parent cannot be shared after a fork."""
        if self._pid != os.getpid():
            self._connect()
        return self._http

    @property
    def node(self) -> str:
        """The name under which leases are held unless a call names another."""
        return self._address.node

    @property
    def urls(self) -> tuple[str, ...]:
        """The servers of the log; calls go to the one that is the writer."""
        return self._servers.urls

    def perform(self, call: Call[T]) -> T:
        """Make a call, again where that is safe.

        Raises:
            LogqueueError: It was refused, or no reply came.
        """
        answers: list[Answer] = []
        try:
            for request in call.requests:
                answers.append(self._answer(request))
        except LogqueueError as error:
            if answers:
                error.add_note(f"{len(answers)} of {len(call.requests)} requests had succeeded")
            raise
        result = call.read(answers)
        if isinstance(result, settling.Settled):
            for working in [*self._working.values()]:
                working.forget(result)
        return result

    def _answer(self, request: CallRequest) -> Answer:
        self._servers.require_one_for(request)
        backoff = self._reconnect if request.is_endless else self._backoff
        if request.is_probe:
            backoff = NO_RETRIES
        attempts = Attempts(backoff, self._clock, self._chance)
        search = self._servers.search()
        while True:
            try:
                return self._try(request, search.url, attempts.is_unsure)
            except LogqueueError as failure:
                error = search.failed(failure)
                delay = attempts.delay_after(error, request.is_repeatable, goes_on=search.goes_on)
                if delay is None:
                    raise error from None
            if not search.goes_on:
                self._sleep(delay)

    def _try(self, request: CallRequest, url: str, is_unsure: bool) -> Answer:
        content = request.content(self.node)
        with connecting.failures_named(self._address, url):
            reply = self._connections().request(
                request.method,
                url + request.path,
                content=content,
                headers=connecting.headers(request, content),
                timeout=self._address.timeout(request.wait_ms),
            )
        connecting.require_success(
            self._address, url, reply.status_code, reply.content, reply.headers
        )
        return Answer(reply.status_code, reply.content, is_unsure)

    def backup(self) -> Generator[bytes, None, None]:
        """A backup of the running server: parts of a tar archive, to be written to a file in order.
        `logqueue restore FILE DATA_DIR` makes a data directory of it.

        It holds all that was answered before the call, and perhaps some of what came later. It is
        whole only when the iteration ends without an error; a broken one is not continued.

        Raises:
            Forbidden: The key is limited to name prefixes.
            Throttled: Another backup is being downloaded.
            LostReply: The server ended it early.
        """
        request = server_calls.backup_request()
        url = self._servers.search().url
        with connecting.failures_named(self._address, url):
            with self._connections().stream(
                request.method,
                url + request.path,
                headers=connecting.headers(request, None),
                timeout=self._address.silence(server_calls.BACKUP_SILENCE_MS_MAX),
            ) as reply:
                body = b"" if reply.status_code == 200 else reply.read()
                connecting.require_success(
                    self._address, url, reply.status_code, body, reply.headers
                )
                yield from reply.iter_raw()

    # -- loops ----------------------------------------------------------------------------------

    def walk(self, listing: Listing[T]) -> Generator[T, None, None]:
        """The items of a list, page by page."""
        call: Call[Any] | None = listing.first
        while call is not None:
            items, call = listing.turn(self.perform(call))
            yield from items

    def follow(self, following: Following[T]) -> Generator[T, None, None]:
        """What an endless iteration brings, over as many streams as it takes."""
        retry = StreamRetry(self._backoff, self._reconnect, self._clock, self._chance)
        search = self._servers.search()
        if self._servers.are_several:
            following.expect_takeovers()
        if isinstance(following, Working):
            self._working[id(following)] = following
        try:
            while not following.is_over():
                url = search.url
                try:
                    with closing(self._bring(following, retry, url)) as items:
                        yield from items
                    continue
                except LogqueueError as failure:
                    error = search.broke(failure) if retry.is_open else search.failed(failure)
                    yield from following.broken(error)
                    delay = retry.delay_after(error, goes_on=search.goes_on)
                    if delay is None:
                        raise error from None
                if search.url != url:
                    following.moved()
                if not search.goes_on:
                    self._sleep(delay)
        finally:
            self._working.pop(id(following), None)

    def _bring(
        self, following: Following[T], retry: StreamRetry, url: str
    ) -> Generator[T, None, None]:
        """What one call before a stream, or one stream, brings."""
        call = following.prepare()
        if call is not None:
            answer = self._try(call.requests[0], url, False)
            yield from following.prepared(call.read([answer]))
            return
        with closing(self._events(following, retry, url)) as events:
            for event in events:
                items = following.take(event)
                retry.delivered()
                yield from items
        if not following.is_over():
            raise ConnectionFailed("the server ended the stream")

    def _events(
        self, following: Following[Any], retry: StreamRetry, url: str
    ) -> Generator[ServerSentEvent, None, None]:
        request, headers = following.request(self.node)
        with connecting.failures_named(self._address, url, following.silence_ms_max / 1000):
            with self._connections().stream(
                request.method,
                url + request.path,
                headers={**connecting.headers(request, None), **headers},
                timeout=self._address.silence(following.silence_ms_max),
            ) as reply:
                # The body of a success is the stream, which has no end.
                body = b"" if reply.status_code == 200 else reply.read()
                connecting.require_success(
                    self._address, url, reply.status_code, body, reply.headers
                )
                connecting.require_stream(reply.status_code, reply.headers)
                following.opened()
                retry.opened()
                retry.retry_ms = None
                with closing(events_of(reply)) as events:
                    for event in events:
                        retry.retry_ms = retry_ms_of(event, retry.retry_ms)
                        if event.data:
                            yield event

    def append(
        self,
        topic: str,
        records: Iterable[Any],
        *,
        chunk: int = appending.CHUNK_DEFAULT,
        key: str | None = None,
        node: str | None = None,
        create: bool | None = None,
        config: topic_calls.ConfigFields | None = None,
        return_seqs: bool = True,
        on_progress: appending.OnProgress | None = None,
    ) -> Appended:
        """Write records, however many, in their order; each batch is stored whole or not at all.

        Every batch carries an idempotency key, so one whose reply was lost is sent again without
        being stored twice. When a batch fails permanently, those before it remain stored; a note
        on the error says how many.

        Args:
            topic: Where to; it must exist, unless `create` or `config` is given.
            records: Plain values are data; NewRecord says more; Records read elsewhere are copied.
            chunk: Records per batch, 1 to 10 000.
            key: The idempotency key of the first batch; the further ones get `/1`, `/2`, ...
                behind it. One of its own for each append when not given.
            node: The producer of the records that name none.
            create: True creates a missing topic, as a log unless `config` says otherwise; False
                never does. When not given, a missing topic is created only with a `config`.
            config: What a missing topic is created with; an existing one is left as it is.
            return_seqs: False leaves the records' seqs out of replies.
            on_progress: Called with the reply to each batch.

        Returns:
            The reply to the batch; of several, their sum without `seqs` and `results`. For no
            records nothing is sent, and all counts are 0.

        Raises:
            TopicNotFound: There is no such topic, and it was not to be created.
            ValueError: A number is NaN or infinite.
            TopicFull: The topic refuses more, and did so until retries ran out.
            RecordTooLarge, InvalidRequest: A record is out of bounds; its batch is not stored.
            TypeError: `records` is a single record, or one is nothing that JSON can say.
        """
        appending.check_records(records, chunk)
        batches = appending.AppendBatches(
            topic,
            key=appending.new_key() if key is None else key,
            node=node,
            create=create,
            config=config,
            return_seqs=return_seqs,
        )
        total = appending.Total(topic)

        def send(requests: Sequence[CallRequest]) -> None:
            for request in requests:
                reply = self.perform(reading(request, Appended))
                total.add(reply)
                if on_progress is not None:
                    on_progress(reply)

        try:
            with BatchSender(send) as sender:
                for part in chunks(records, chunk):
                    sender.begin(batches.requests(part))
        except Exception as error:
            total.note_on(error)
            raise
        return total.result()


def calling(build: Callable[P, Call[T]]) -> Callable[Concatenate[BlockingCalls, P], T]:
    """The method that makes the call which `build` describes."""

    def method(client: BlockingCalls, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.perform(build(*args, **kwargs))

    describe(method, build, "{}")
    return method


def listing(
    build: Callable[P, Listing[T]],
) -> Callable[Concatenate[BlockingCalls, P], Generator[T, None, None]]:
    """The method that walks the list which `build` describes."""

    def method(
        client: BlockingCalls, /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T, None, None]:
        return client.walk(build(*args, **kwargs))

    describe(method, build, "Generator[{}, None, None]")
    return method


def streaming(
    build: Callable[P, Following[T]],
) -> Callable[Concatenate[BlockingCalls, P], Generator[T, None, None]]:
    """The method that follows the streams which `build` describes."""

    def method(
        client: BlockingCalls, /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T, None, None]:
        return client.follow(build(*args, **kwargs))

    describe(method, build, "Generator[{}, None, None]")
    return method


class Client(BlockingCalls):
    """A client of one log. Threads may share it.

    Each method is documented where the call it makes is described: `help(Client.claim)` shows it.
    """

    put_topic = calling(topic_calls.put_topic)
    ensure_topic = calling(topic_calls.ensure_topic)
    patch_topic = calling(topic_calls.patch_topic)
    topic = calling(topic_calls.topic)
    stats = calling(topic_calls.stats)
    topic_history = calling(live_stats.topic_history)
    topic_page = calling(topic_calls.topic_page)
    topics = listing(topic_calls.topics)
    drop_topic = calling(topic_calls.drop_topic)

    diff = calling(topic_calls.diff)
    read = listing(topic_calls.read)
    delete_records = calling(topic_calls.delete_records)
    watch = streaming(following.watch)

    claim = calling(queue_calls.claim)
    work = streaming(following.work)
    ack = calling(settling.ack)
    nack = calling(settling.nack)
    reject = calling(settling.reject)
    extend = calling(settling.extend)

    job = calling(queue_calls.job)
    job_statuses = calling(queue_calls.job_statuses)
    job_page = calling(queue_calls.job_page)
    jobs = listing(queue_calls.jobs)
    groups = calling(queue_calls.groups)
    workers = calling(queue_calls.workers)
    change_jobs = calling(queue_calls.change_jobs)
    all_workers = calling(live_stats.all_workers)
    cancel = calling(queue_calls.cancel)
    cancel_key = calling(queue_calls.cancel_key)
    purge = calling(queue_calls.purge)
    release = calling(queue_calls.release)
    redrive = calling(queue_calls.redrive)
    pause = calling(queue_calls.pause)
    resume = calling(queue_calls.resume)

    stage = calling(producer_calls.stage)
    commit = calling(producer_calls.commit)
    abort = calling(producer_calls.abort)
    producer = calling(producer_calls.producer)

    seq_at = calling(log_calls.seq_at)
    segment_page = calling(log_calls.segment_page)
    segments = listing(log_calls.segments)
    segment = calling(log_calls.segment)

    put_router = calling(server_calls.put_router)
    router = calling(server_calls.router)
    router_page = calling(server_calls.router_page)
    routers = listing(server_calls.routers)
    drop_router = calling(server_calls.drop_router)

    open_batch = calling(batch_calls.open_batch)
    close_batch = calling(batch_calls.close_batch)
    batch = calling(batch_calls.batch)
    batch_page = calling(batch_calls.batch_page)
    batches = listing(batch_calls.batches)
    drop_batch = calling(batch_calls.drop_batch)

    put_schedule = calling(schedule_calls.put_schedule)
    schedule = calling(schedule_calls.schedule)
    schedule_page = calling(schedule_calls.schedule_page)
    schedules = listing(schedule_calls.schedules)
    drop_schedule = calling(schedule_calls.drop_schedule)
    pause_schedule = calling(schedule_calls.pause_schedule)
    resume_schedule = calling(schedule_calls.resume_schedule)
    run_schedule = calling(schedule_calls.run_schedule)
    firings = calling(schedule_calls.firings)

    stats_stream = streaming(live_stats.stats_stream)
    health = calling(server_calls.health)
    ready = calling(server_calls.ready)
    metrics = calling(server_calls.metrics)
    server = calling(server_calls.server)
    set_log_level = calling(server_calls.set_log_level)
    replica = calling(server_calls.replica)
    promote = calling(server_calls.promote)
    metrics_text = calling(server_calls.metrics_text)

    edit_job = calling(letter_calls.edit_job)
    dead_letters = calling(letter_calls.dead_letters)
    redrive_in_background = calling(letter_calls.redrive_in_background)
    drop_dead_letters = calling(letter_calls.drop_dead_letters)

    operations = calling(background_calls.operations)
    operation = calling(background_calls.operation)
    stop_operation = calling(background_calls.stop_operation)
