"""MemoryServer: a whole server, its workers and the network between them, in one process.

Owns: driving virtual time, workers as things that can be started, stopped and crashed, and the
surroundings that apps get. Must not know: how requests are answered, what handlers do.

The server is the real one (engine, journal, HTTP layer), the client and the worker runtime are the
real ones; the disk, the network and the clock are not. Time passes only inside `advance`, `drain`
and `run_until`, and only when every handler waits: an hour of backoff costs a millisecond.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from logqueue.client import AsyncClient, Client
from logqueue.testing.core import HOST, MemoryCore
from logqueue.testing.transport import AwaitingTransport, BlockingTransport, Faults, Link
from logqueue.testing.virtual import VirtualLoop, VirtualTime
from logqueue.worker.app import App
from logqueue.worker.consuming import Counts
from logqueue.worker.environment import ONE_TRY, Environment
from logqueue.worker.leases import LeaseKeeper
from logqueue.worker.worker import Worker

T = TypeVar("T")

URL = f"http://{HOST}"
DAY_S = 86_400.0
LOOK_S = 600.0
CLEANUP_S = 3600.0
"""Virtual seconds that cancelled tasks have for cleaning up when the server is closed."""
CANCELLED_MAX = 3
"""How often a task that does not end is cancelled then."""


class MemoryWorker:
    """A worker that was started on a MemoryServer.

    Attributes:
        worker: The worker itself.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.task: asyncio.Task[Counts] | None = None

    @property
    def counts(self) -> Counts:
        """What it did so far."""
        return self.worker.counts

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        assert self.task is not None
        return self.task.done()


class MemoryServer:
    """A server under virtual time. Use it as a context manager, or `close` it."""

    def __init__(self, *, seed: int = 0) -> None:
        """An empty server.

        Args:
            seed: For everything that is left to chance: jitter, and the disk.
        """
        self._seed = seed
        self._time = VirtualTime()
        self._core = MemoryCore(self._time, seed)
        self._faults = Faults()
        self._links: dict[str, Link] = {}
        self._attached: list[tuple[App, Environment]] = []
        self._workers: list[MemoryWorker] = []
        self._clients: list[Client] = []
        self._loop = VirtualLoop(self._time)
        self._loop.ask_before_sleep(self._idle)
        self._time.poke_with(self._poke)
        self._horizon = 0.0
        self._until: Callable[[], bool] | None = None
        self._heeds_threads = True
        self._client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- clients ---------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """A client of this server, to look and to write with."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    def connect(self, node: str = "test") -> Client:
        """Another client; its calls may wait, and time passes for them then."""
        client = Client(
            URL,
            node=node,
            transport=BlockingTransport(self._link(node), self._wait),
            clock=self.now,
            sleep=self.sleep,
            chance=Random(self._seed).random,
        )
        self._clients.append(client)
        return client

    def attach(self, app: App) -> None:
        """Have an app send to, and its workers work for, this server until it is closed."""
        if any(known is app for known, _ in self._attached):
            return
        self._attached.append((app, app.surroundings))
        app.close()
        app.surroundings = _InMemory(self)

    # -- time ------------------------------------------------------------------------------------

    def now(self) -> float:
        """Virtual seconds since the server was made."""
        return self._time.now()

    @property
    def now_ms(self) -> int:
        """The server's clock, in ms since the Unix epoch."""
        return self._core.now_ms()

    def advance(self, seconds: float, *, past_threads: bool = False) -> None:
        """Let time pass; everything that becomes due on the way happens, in order.

        Args:
            seconds: How long.
            past_threads: Do not wait for handlers that are at work in threads or processes: for
                them it is as if they took that long.
        """
        self._drive(self._time.now() + seconds, None, heeds_threads=not past_threads)

    def run_until(self, condition: Callable[[], bool], *, limit: float = DAY_S) -> None:
        """Let time pass until a condition holds. It is looked at whenever everything waits.

        Raises:
            TimeoutError: It did not within `limit` virtual seconds.
        """
        ends = self._time.now() + limit
        self._drive(ends, condition)
        if not condition():
            raise TimeoutError(f"the condition does not hold after {limit:g} virtual seconds")

    def sleep(self, seconds: float) -> None:
        """Sleep in virtual time: what a handler that blocks calls in place of `time.sleep`.

        On the event loop it blocks the loop, as `time.sleep` would: leases are renewed, nothing
        else continues.
        """
        thread = threading.get_ident()
        if self._time.driver == thread:
            self._time.move_to(self._time.now() + seconds)
        elif self._time.driver is None:
            self.advance(seconds)
        else:
            self._time.wait_in_thread(self._time.now() + seconds, threading.Event())

    # -- workers ---------------------------------------------------------------------------------

    def start(self, app: App, **options: Any) -> MemoryWorker:
        """Start a worker; it runs whenever time passes, and at once up to where it waits.

        Args:
            app: What it works for.
            options: Those of `Worker`.
        """
        self.attach(app)
        options.setdefault("node", f"worker-{len(self._workers) + 1}")
        options.setdefault("seed", self._seed)
        started = MemoryWorker(Worker(app, **options))
        self._workers.append(started)
        started.task = self._loop.create_task(started.worker.run())
        self._run_ready()
        return started

    def stop(self, worker: MemoryWorker) -> Counts:
        """Stop a worker as SIGTERM would, and let time pass until it has ended."""
        assert worker.task is not None
        worker.worker.stop()
        self.run_until(worker.task.done)
        return worker.task.result()

    def crash(self, worker: MemoryWorker, *, is_noticed: bool = True) -> None:
        """End a worker as SIGKILL would: nothing is said, nothing is given back.

        Args:
            is_noticed: The server sees its connections end. False: as when a machine loses power.
        """
        assert worker.task is not None
        self._link(worker.worker.node).cut(is_noticed=is_noticed, is_dead=True)
        worker.task.cancel()
        self._run_ready()

    def drain(self, app: App, *, limit: float = DAY_S, **options: Any) -> Counts:
        """Work until the app's queues are empty, retries and delays included.

        Args:
            app: Whose queues.
            limit: Virtual seconds it may take.
            options: Those of `Worker`.

        Returns:
            What the worker did.

        Raises:
            TimeoutError: Jobs were left at the limit: such as are retried for ever, or held.
        """
        worker = self.start(app, **options)
        queues = worker.worker.queues

        checked_at: tuple[int, float] | None = None
        was_empty = False

        def is_drained() -> bool:
            nonlocal checked_at, was_empty
            # What a worker does shows at once; records that expire by themselves, in a while.
            now = (self._core.changes, self._time.now() // LOOK_S)
            if checked_at != now:
                checked_at = now
                was_empty = all(self._waiting(queue) == 0 for queue in queues)
            return was_empty or worker.is_over

        try:
            self.run_until(is_drained, limit=limit)
        except TimeoutError:
            left = {queue: self._waiting(queue) for queue in queues}
            raise TimeoutError(f"after {limit:g} virtual seconds jobs are left: {left}") from None
        finally:
            counts = self.stop(worker)
        return counts

    def _waiting(self, queue: str) -> int:
        state = self.client.topic(queue, touch=False)
        return state.count - (state.queue.held if state.queue is not None else 0)

    # -- failures --------------------------------------------------------------------------------

    def lose_request(self, verb: str, times: int = 1) -> None:
        """Have the next calls of a verb never reach the server; the caller cannot know that.

        Args:
            verb: `append`, `claim`, `ack`, `nack`, `reject`, `extend`, `work`, ...
            times: How many.
        """
        self._faults.order("request", verb, times)

    def lose_reply(self, verb: str, times: int = 1) -> None:
        """Have the next calls of a verb take effect, and their replies be lost."""
        self._faults.order("reply", verb, times)

    def cut_off(self, worker: MemoryWorker, *, is_noticed: bool = True) -> None:
        """Let nothing through between a worker and the server; the worker runs on.

        Args:
            is_noticed: Both see their connections end. False: as when a cable is cut.
        """
        self._link(worker.worker.node).cut(is_noticed=is_noticed)
        self._run_ready()

    def reconnect(self, worker: MemoryWorker) -> None:
        """Undo `cut_off`."""
        self._link(worker.worker.node).is_cut = False

    def break_connections(self) -> None:
        """Every open stream and waiting call breaks, once."""
        self._core.break_connections()
        self._run_ready()

    def restart(self, *, kill: bool = False) -> None:
        """Restart the server on its disk, in no time; `kill` as by SIGKILL."""
        self._core.restart(kill=kill)
        self._run_ready()

    # -- shutdown --------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel workers and whatever handlers have started, and await their end; give apps their
        surroundings back; end the server."""
        for worker in self._workers:
            if not worker.is_over:
                self.crash(worker)
        self._end_tasks()
        for app, surroundings in self._attached:
            app.close()
            self._finish(app.aclose())
            app.surroundings = surroundings
        self._attached.clear()
        for client in self._clients:
            client.close()
        self._finish(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._core.close()

    def _end_tasks(self) -> None:
        """Cancel every task of the workers' loop. Virtual time passes while they clean up; one that
        takes too long is cancelled again."""
        for attempt in range(CANCELLED_MAX):
            left = asyncio.all_tasks(self._loop)
            if not left:
                return
            for task in left:
                # One that a crash has cancelled already may be cleaning up.
                if attempt or not task.cancelling():
                    task.cancel()
            self._drive(
                self._time.now() + CLEANUP_S,
                lambda: not asyncio.all_tasks(self._loop),
                heeds_threads=False,
            )

    def _finish(self, work: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(work)
        self._run_ready()
        assert task.done()

    # -- driving ---------------------------------------------------------------------------------

    def _run_ready(self) -> None:
        """Run everything that can run now; no time passes."""
        self._drive(self._time.now(), None, heeds_threads=False)

    def _drive(
        self, horizon: float, until: Callable[[], bool] | None, *, heeds_threads: bool = True
    ) -> None:
        """Run the workers' loop up to a time, or until a condition holds."""
        if self._time.driver is not None:
            raise RuntimeError("time passes already; a handler sleeps with MemoryServer.sleep")
        if not _is_in_loop():
            self._drive_here(horizon, until, heeds_threads)
            return
        # Inside another loop, such as that of an async test: a loop cannot run in another.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self._drive_here, horizon, until, heeds_threads).result()

    def _drive_here(
        self, horizon: float, until: Callable[[], bool] | None, heeds_threads: bool
    ) -> None:
        self._horizon, self._until, self._heeds_threads = horizon, until, heeds_threads
        self._time.driver = threading.get_ident()
        try:
            self._loop.run_forever()
        finally:
            self._time.driver = None

    def _idle(self, timeout: float | None) -> bool:
        """Nothing is left to do now. Let time pass to what is due next, or stop."""
        time = self._time
        if self._heeds_threads and time.is_busy:
            return True
        if self._until is not None and self._until():
            self._loop.stop()
            return False
        if time.now() >= self._horizon:
            self._loop.stop()
            return False
        dues = [self._horizon]
        if timeout is not None:
            dues.append(time.now() + timeout)
        due = time.next_due()
        if due is not None:
            dues.append(due)
        time.move_to(min(dues))
        return False

    def _poke(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: None)

    def _wait(self, is_met: Callable[[], bool], changed: threading.Event) -> None:
        """Block a client until the server has answered, letting time pass for that if need be."""
        while not is_met():
            if self._time.driver == threading.get_ident():
                due = self._time.next_due()
                if due is None:
                    raise RuntimeError("this call waits for something that never comes")
                self._time.move_to(due)
            elif self._time.driver is None:
                self.run_until(is_met)
            else:
                self._time.wait_in_thread(None, changed)
                changed.clear()

    def _link(self, node: str) -> Link:
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = Link(self._core, self._faults)
        return link


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _InMemory:
    """The surroundings of an app on a MemoryServer."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server

    def producer(self) -> Client:
        """See Surroundings."""
        return self._server.connect("producer")

    def async_producer(self) -> AsyncClient:
        """See Surroundings."""
        return self._async_client("producer")

    def worker(self, node: str) -> AsyncClient:
        """See Surroundings."""
        return self._async_client(node, backoff=ONE_TRY, reconnect=ONE_TRY)

    def keeper(self, node: str, timeout_s: float) -> Client:
        """See Surroundings."""
        server = self._server
        transport = BlockingTransport(server._link(node), server._wait)
        return Client(URL, node=node, backoff=ONE_TRY, transport=transport, clock=server.now)

    def _async_client(self, node: str, **options: Any) -> AsyncClient:
        server = self._server
        return AsyncClient(
            URL,
            node=node,
            transport=AwaitingTransport(server._link(node)),
            clock=server.now,
            chance=Random(server._seed).random,
            **options,
        )

    def now(self) -> float:
        """See Surroundings."""
        return self._server.now()

    def start(self, keeper: LeaseKeeper) -> Callable[[], None]:
        """See Surroundings. Virtual time drives it, even while a handler blocks the loop."""
        clockwork = _KeeperClockwork(keeper)
        self._server._time.add(clockwork)

        def stop() -> None:
            self._server._time.remove(clockwork)
            keeper.close()

        return stop


class _KeeperClockwork:
    def __init__(self, keeper: LeaseKeeper) -> None:
        self._keeper = keeper

    def next_due(self) -> float | None:
        return self._keeper.next_due()

    def fire(self) -> None:
        self._keeper.renew_due()
