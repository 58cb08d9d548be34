"""An app: tasks and consumers, and sending.

Owns: registration, the typed decorators, connections for producers. Must not know: how a worker
runs jobs. Making an app connects to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from logqueue.client import AsyncClient, Backoff, Client, ConfigFields, FollowUp
from logqueue.client.calls import as_json
from logqueue.client.connecting import Urls
from logqueue.client.topic_calls import known_config
from logqueue.errors import quoted
from logqueue.shapes import Appended, JobStatus, TopicEnsured
from logqueue.worker.environment import Environment, Network
from logqueue.worker.handle import JobHandle, StatusSearch, values_of
from logqueue.worker.handlers import Handler, Handlers, RunIn, where
from logqueue.worker.job import Job
from logqueue.worker.message import Message
from logqueue.worker.middleware import Middleware
from logqueue.worker.outcomes import AckPolicy
from logqueue.worker.payload import Arguments, read_call
from logqueue.worker.retry import Retry
from logqueue.worker.schedule import DeclaredSchedule, ScheduleTimes, declared
from logqueue.worker.task import Task
from logqueue.worker.workflow import JobBatchHandle, open_batch, send_group

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

QUEUE_DEFAULT = "default"

Lifespan = Callable[["App"], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""Runs around a worker; what it yields is `job.state` of every job: a pool of connections, say."""


class App:
    """Tasks and consumers of one server.

    Attributes:
        handlers: What is registered.
        schedules: Those of its tasks, by name.
        middleware: The outermost first.
        lifespan: Entered once per worker process, on its event loop.
        surroundings: How to reach the server; tests replace it.
    """

    def __init__(
        self,
        url: Urls | None = None,
        token: str | None = None,
        *,
        middleware: Iterable[Middleware] = (),
        lifespan: Lifespan | None = None,
        timeout_s: float | None = None,
        backoff: Backoff | None = None,
        surroundings: Environment | None = None,
    ) -> None:
        """Nothing is connected yet.

        Args:
            url: Where the server is, or all servers of one log, see `Client`; LOGQUEUE_URL, else
                http://127.0.0.1:4000.
            token: The key to call with; LOGQUEUE_TOKEN, else none.
            middleware: Around every handler, and beside every send.
            lifespan: An async context manager that makes what handlers share.
            timeout_s: How long a reply may take, in seconds; 10 when not given.
            backoff: How sends are retried: for 40 s in all when not given. Workers go on for ever.
            surroundings: In place of all that says where the server is; for tests.
        """
        self.handlers = Handlers()
        self.middleware = [*middleware]
        self.lifespan = lifespan
        self.surroundings: Environment = surroundings or Network(
            url, token, timeout_s=timeout_s, backoff=backoff
        )
        self.schedules: dict[str, DeclaredSchedule] = {}
        self._configs: dict[str, ConfigFields] = {}
        # Without a lock: a fork while another thread held it would block the child for ever.
        self._clients: dict[str, Client] = {}
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            WeakKeyDictionary()
        )

    # -- registration ----------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        queue: str = ...,
        name: str | None = ...,
        retry: Retry | None = ...,
        timeout: float | None = ...,
        concurrency: int | None = ...,
        ack_policy: AckPolicy = ...,
        run_in: RunIn | None = ...,
        schedule: ScheduleTimes | Iterable[ScheduleTimes] = ...,
        priority: int | None = ...,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self,
        function: Callable[P, R] | None = None,
        /,
        *,
        queue: str = QUEUE_DEFAULT,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        concurrency: int | None = None,
        ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR,
        run_in: RunIn | None = None,
        schedule: ScheduleTimes | Iterable[ScheduleTimes] = (),
        priority: int | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]] | Task[P, R]:
        """Make a function a task: jobs of `queue` can call it. Works as `@app.task` too.

        Args:
            queue: Where its jobs go; several tasks may share one.
            name: What it is called in payloads; the function's name by default. Keep it when the
                function is renamed, as long as jobs are under way.
            retry: When a failed job is tried again; for ever, 1 s to 5 min apart, by default.
            timeout: Seconds a run may take.
            concurrency: Runs at once in one worker process; the worker's default when not given.
            ack_policy: What the worker does about a job on its own.
            run_in: `loop` for async functions (the default for them), `thread` (the default for
                others) or `process`, for code that holds the interpreter lock.
            schedule: When it runs by itself: a `Cron`, an `Every`, or several. A worker declares
                them when it starts.
            priority: 0 to 9, of its jobs that are sent without one; a higher one goes first.

        Raises:
            ValueError: The name is taken, the queue has a consumer, or a bound is violated.
            TypeError: A parameter cannot travel as JSON.
        """

        def register(function: Callable[P, R]) -> Task[P, R]:
            called = name or function.__name__
            arguments = Arguments(called, function)

            def bind(job: Job) -> tuple[Sequence[Any], dict[str, Any]]:
                return arguments.decode(read_call(job.data).with_input(job.input))

            handler = Handler(
                name=called,
                queue=queue,
                function=function,
                bind=bind,
                policy=ack_policy,
                retry=retry or Retry(),
                timeout=timeout,
                concurrency=concurrency,
                run_in=where(function, run_in),
                priority=priority,
            )
            schedules = declared(schedule, called, queue, arguments)
            self.handlers.add_task(handler)
            self._schedule(schedules)
            return Task(handler, self, arguments)

        return register if function is None else register(function)

    def _schedule(self, schedules: Iterable[DeclaredSchedule]) -> None:
        for schedule in schedules:
            if schedule.name in self.schedules:
                raise ValueError(
                    f"schedule {quoted(schedule.name)} exists already: give this one another name="
                )
            self.schedules[schedule.name] = schedule

    def consumer(
        self,
        queue: str,
        *,
        ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR,
        retry: Retry | None = None,
        timeout: float | None = None,
        concurrency: int | None = None,
        run_in: RunIn | None = None,
    ) -> Callable[[F], F]:
        """Have a function handle every job of a queue, whatever its payload.

        The function takes the `Job`. Arguments are those of `task`.

        Raises:
            ValueError: The queue has handlers already, or a bound is violated.
        """

        def register(function: F) -> F:
            self.handlers.add_consumer(
                Handler(
                    name=function.__name__,
                    queue=queue,
                    function=function,
                    bind=lambda job: ((job,), {}),
                    policy=ack_policy,
                    retry=retry or Retry(),
                    timeout=timeout,
                    concurrency=concurrency,
                    run_in=where(function, run_in),
                )
            )
            return function

        return register

    def queue(self, name: str, **config: Unpack[ConfigFields]) -> None:
        """Declare how a queue is set up.

        A missing queue is created so, by the first send or worker. An existing queue is never
        changed: its config belongs to its operators. A worker logs a warning for each field that
        differs when it starts, and `logqueue worker --check` fails.

        Raises:
            TypeError: A config field is unknown.
            ValueError: `type` is not "queue".
        """
        known_config(config)
        if config.get("type", "queue") != "queue":
            raise ValueError(f"queue {name}: type must be queue")
        self._configs[name] = config

    @property
    def declared(self) -> Mapping[str, ConfigFields]:
        """What `queue` was given, by queue."""
        return self._configs

    def config_of(self, queue: str) -> ConfigFields:
        """What a queue is created with: as declared, with leases that survive a restart."""
        declared: ConfigFields = {**self._configs.get(queue, {}), "type": "queue"}
        if declared.get("durability") == "ephemeral":
            return declared
        return {"leases_durable": True, **declared}

    def drift_of(self, queue: str, found: TopicEnsured) -> list[str]:
        """What differs between a queue and its declaration, one text per field.

        What the library adds by itself does not count.
        """
        declared = self._configs.get(queue, {})
        return [
            f"{field} is {as_json(drift.have)}, the app declares {as_json(drift.want)}"
            for field, drift in found.differs.items()
            if field in declared
        ]

    # -- sending ---------------------------------------------------------------------------------

    def send(self, message: Message) -> JobHandle[Any]:
        """Write one job; returns its handle, which is its seq. See `Task.send`.

        Raises:
            LogqueueError: The server refused, or could not be reached.
        """
        (seq,) = self._seqs_of(self._append([message]))
        return JobHandle(seq, message.queue, self)

    def send_many(self, messages: Iterable[Message]) -> list[JobHandle[Any]]:
        """Write jobs, those of each queue in one go; returns their handles in the given order.

        Jobs of one queue become visible together, up to 1000 at a time.

        Raises:
            LogqueueError: The server refused, or could not be reached.
        """
        listed = [*messages]
        seqs: dict[int, int] = {}
        for queue in dict.fromkeys(message.queue for message in listed):
            places = [i for i, message in enumerate(listed) if message.queue == queue]
            for start in range(0, len(places), 1000):
                part = places[start : start + 1000]
                stored = self._seqs_of(self._append([listed[i] for i in part]))
                seqs.update(zip(part, stored, strict=True))
        return [JobHandle(seqs[i], message.queue, self) for i, message in enumerate(listed)]

    async def send_async(self, message: Message) -> JobHandle[Any]:
        """As `send`, on an event loop."""
        self._prepare([message])
        queue = message.queue
        reply = await self._async_producer().append(
            queue, [message.record()], config=self.config_of(queue)
        )
        return JobHandle(self._seqs_of(reply)[0], queue, self)

    # -- results ---------------------------------------------------------------------------------

    def handle(self, queue: str, seq: int) -> JobHandle[Any]:
        """The handle of a job that was sent elsewhere, or earlier."""
        return JobHandle(seq, queue, self)

    def results(
        self,
        handles: Iterable[JobHandle[Any]],
        timeout: float | None = None,
        *,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """What some tasks returned, in the order of the handles; waits for all of them, with one
        request at a time for each queue.

        Args:
            handles: The jobs.
            timeout: How long to wait at most, in seconds; without a bound when not given.
            return_exceptions: Put `JobFailed` and `ResultGone` in the place of results.

        Raises:
            JobFailed, ResultGone: Of the first job that has no result.
            TimeoutError: Some have not ended in time.
            LogqueueError: The server refused, or could not be reached.
        """
        listed = [*handles]
        statuses = self.statuses(listed, timeout)
        return values_of(listed, statuses, return_exceptions=return_exceptions)

    async def results_async(
        self,
        handles: Iterable[JobHandle[Any]],
        timeout: float | None = None,
        *,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """As `results`, on an event loop."""
        listed = [*handles]
        statuses = await self.statuses_async(listed, timeout)
        return values_of(listed, statuses, return_exceptions=return_exceptions)

    def statuses(
        self, handles: Sequence[JobHandle[Any]], timeout: float | None = 0
    ) -> list[JobStatus]:
        """What jobs are or have become, in the order of their handles.

        Args:
            handles: The jobs.
            timeout: Wait until all have ended, so many seconds at most; None for no bound, 0 to
                take them as they are.

        Raises:
            TimeoutError: Some have not ended in time.
            LogqueueError: The server refused, or could not be reached.
        """
        search = StatusSearch(handles, timeout)
        while (call := search.next_call()) is not None:
            queue, seqs, wait_ms = call
            found = self._producer().job_statuses(queue, seqs, wait_ms=wait_ms or None)
            search.note(queue, found.jobs)
        return search.found()

    async def statuses_async(
        self, handles: Sequence[JobHandle[Any]], timeout: float | None = 0
    ) -> list[JobStatus]:
        """As `statuses`, on an event loop."""
        search = StatusSearch(handles, timeout)
        while (call := search.next_call()) is not None:
            queue, seqs, wait_ms = call
            client = self._async_producer()
            found = await client.job_statuses(queue, seqs, wait_ms=wait_ms or None)
            search.note(queue, found.jobs)
        return search.found()

    # -- what follows ----------------------------------------------------------------------------

    def batch(
        self,
        name: str | None = None,
        *,
        on_done: Message | None = None,
        on_problem: Message | None = None,
    ) -> JobBatchHandle:
        """Open a batch of jobs: `with app.batch(on_done=report.job(17)) as batch:`, then
        `batch.add(resize.job("a.png"))`. It is closed at the end of the block.

        Args:
            name: Its name; made when not given.
            on_done: The job that is written once when all have ended; without `on_problem`,
                whatever became of them.
            on_problem: The job that is written instead when some have failed.

        Raises:
            BatchExists: There is another one with that name, or it is closed.
            LogqueueError: The server refused, or could not be reached.
        """
        return open_batch(self, name, on_done, on_problem)

    def group(
        self,
        messages: Iterable[Message],
        *,
        name: str | None = None,
        on_done: Message | None = None,
        on_problem: Message | None = None,
    ) -> JobBatchHandle:
        """Write jobs as a batch, and close it: `app.group(resize.job(p) for p in paths).wait()`.

        Args and errors are those of `batch`.
        """
        return send_group(self, messages, name, on_done, on_problem)

    def prepared(self, message: Message) -> Message:
        """A job as middleware has it."""
        self._prepare([message])
        return message

    def batch_client(self) -> Client:
        """Makes calls about batches."""
        return self._producer()

    def follow_ups(self, messages: Sequence[Message]) -> list[FollowUp]:
        """What jobs come to that are written together with an ack."""
        self._prepare(messages)
        return [
            FollowUp(
                queue,
                [message.record() for message in messages if message.queue == queue],
                config=self.config_of(queue),
            )
            for queue in dict.fromkeys(message.queue for message in messages)
        ]

    def _append(self, messages: Sequence[Message]) -> Appended:
        self._prepare(messages)
        queue = messages[0].queue
        records = [message.record() for message in messages]
        return self._producer().append(queue, records, config=self.config_of(queue))

    def _prepare(self, messages: Iterable[Message]) -> None:
        for message in messages:
            for layer in self.middleware:
                layer.on_send(message)
            self._prepare(message.then)

    @staticmethod
    def _seqs_of(reply: Appended) -> list[int]:
        assert reply.seqs is not None, "seqs were asked for"
        return reply.seqs

    # -- connections -----------------------------------------------------------------------------

    def _producer(self) -> Client:
        client = self._clients.get("producer")
        if client is None:
            made = self.surroundings.producer()
            client = self._clients.setdefault("producer", made)
            if client is not made:
                made.close()
        return client

    def _async_producer(self) -> AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            client = self._async_clients[loop] = self.surroundings.async_producer()
        return client

    def close(self) -> None:
        """Close the connections of `send`."""
        client = self._clients.pop("producer", None)
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of `send_async` on the running loop."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
