"""Workers as programs: signals, processes, finding the app.

Owns: one worker on a loop of its own, several as child processes, and what the command line needs
of them. Must not know: how a worker works. Signals are handled only where the caller names them.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from logqueue.client import Client
from logqueue.errors import (
    LogqueueError,
    ScheduleNotFound,
    TopicNotFound,
    quoted,
)
from logqueue.worker.app import App
from logqueue.worker.consuming import Counts
from logqueue.worker.crew import WorkerProcesses
from logqueue.worker.schedule import DeclaredSchedule
from logqueue.worker.worker import Worker

EXIT_OK = 0
EXIT_FAILURE = 1

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""What a program that is nothing but a worker should hand to `run_worker`."""

logger = logging.getLogger("logqueue.worker")


class AppNotFound(Exception):
    """`module:app` names no app; the message says what is wrong with it."""


def load_app(reference: str) -> App:
    """Import the app that `module:attribute` names.

    Raises:
        AppNotFound: The module cannot be imported, or holds no such app.
    """
    module, colon, attribute = reference.partition(":")
    if not colon or not module or not attribute:
        raise AppNotFound(f"invalid app {quoted(reference)}: use module:app, as in shop.tasks:app")
    # A program that was installed as a script does not look where it was started.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise AppNotFound(f"{quoted(module)} cannot be imported: {error}") from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AppNotFound(f"the module '{module}' has no '{attribute}': name its App") from None
    if not isinstance(found, App):
        raise AppNotFound(f"{quoted(reference)} is not an App but {type(found).__name__}")
    return found


def check(app: App) -> list[str]:
    """One line per handler: what `logqueue worker --check` prints."""
    return [
        f"{handler.queue}: {handler.name} "
        f"({handler.run_in}, {handler.policy.value}, "
        f"concurrency {handler.concurrency or 'of the worker'}, "
        f"timeout {'none' if handler.timeout is None else f'{handler.timeout:g} s'})"
        for handler in app.handlers.of_all()
    ]


def check_queues(app: App) -> list[str]:
    """One line per difference between declared queues and schedules, and those of the server.

    Creates and changes nothing: a missing queue is created by the first worker or send.

    Raises:
        LogqueueError: The server refused, or could not be reached.
    """
    client = app.surroundings.producer()
    try:
        queues = [line for queue in app.declared for line in _drift(app, client, queue)]
        schedules = [
            line for one in app.schedules.values() for line in _schedule_drift(client, one)
        ]
        return [*queues, *schedules]
    finally:
        client.close()


def _drift(app: App, client: Client, queue: str) -> list[str]:
    try:
        state = client.topic(queue, touch=False)
    except TopicNotFound:
        return []
    if state.type != "queue":
        return [f"queue {queue}: it exists as a log"]
    found = client.ensure_topic(queue, **app.config_of(queue))
    return [f"queue {queue}: {drift}" for drift in app.drift_of(queue, found)]


def _schedule_drift(client: Client, schedule: DeclaredSchedule) -> list[str]:
    try:
        client.schedule(schedule.name, next=0)
    except ScheduleNotFound:
        return []
    found = client.put_schedule(
        schedule.name, schedule.queue, schedule.record(), if_absent=True, **schedule.options()
    )
    return [f"schedule {schedule.name}: {drift}" for drift in schedule.drift(found)]


def run_worker(
    app: App | str,
    *,
    processes: int = 1,
    signals: Iterable[signal.Signals] = (),
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    queues: Sequence[str] | None = None,
    **options: Any,
) -> int:
    """Run a worker, or several processes of it, until stopped. Blocks.

    Args:
        app: The app, or `module:app`; the latter for more than one process.
        processes: How many processes; with one, the worker runs in this one.
        signals: Which signals mean "stop", usually `STOP_SIGNALS`: the first stops in order, the
            second skips the grace, the third ends the process. None are touched by default; only
            the main thread can have any.
        loop_factory: Makes the event loop; asyncio's default one if not given.
        queues: Which of the app's queues; all by default.
        options: Those of `Worker`: concurrency, prefetch, source, once, grace, lease, ...

    Returns:
        The exit status: 0 after an orderly stop, 1 when the worker could not go on, or when it was
        to end with the work (`once`) and the last run of a job failed.

    Raises:
        AppNotFound: `module:app` names no app.
        ValueError: A queue has no handler, a bound is violated, or several processes are asked for
            without `module:app`.
    """
    if processes < 1:
        raise ValueError("processes must be at least 1")
    if processes > 1:
        if not isinstance(app, str):
            raise ValueError("several processes need the app as module:app, to import it there")
        load_app(app)
        return WorkerProcesses(_run_child, (app, {"queues": queues, **options}), processes).run(
            signals
        )
    loaded = load_app(app) if isinstance(app, str) else app
    worker = Worker(loaded, queues=queues, **options)
    return _run_here(worker, [*signals], loop_factory)


def _run_child(reference: str, options: dict[str, Any]) -> int:
    """One process of several. It heeds its parent only: a terminal signals them all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _run_here(Worker(load_app(reference), **options), [signal.SIGTERM], None)


@contextmanager
def _handled(
    signals: Sequence[signal.Signals], loop: asyncio.AbstractEventLoop, then: Callable[[], None]
) -> Iterator[None]:
    """Call something on the loop at each of these signals."""
    if sys.platform != "win32":
        for number in signals:
            loop.add_signal_handler(number, then)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
    else:  # its loops take no handlers
        before = {
            number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(then))
            for number in signals
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _run_here(
    worker: Worker,
    signals: Sequence[signal.Signals],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> int:
    async def run() -> Counts:
        loop = asyncio.get_running_loop()
        received = 0

        def on_signal() -> None:
            nonlocal received
            received += 1
            if received > 2:
                os._exit(EXIT_FAILURE)
            worker.stop()

        with _handled(signals, loop, on_signal):
            return await worker.run()

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            counts = runner.run(run())
    except LogqueueError as error:
        logger.error("the worker failed: %s", error)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_OK
    if counts.failed:
        logger.error("jobs that failed: %d", len(counts.failed))
        return EXIT_FAILURE
    return EXIT_OK
