"""Several processes of one worker: started together, started again, stopped together.

Owns: the children and the signals that concern them all. Must not know: what a child does.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

RESTART_S = 1.0
"""After so long a child that died is started again; one that cannot start must not spin."""

logger = logging.getLogger("logqueue.worker.crew")


class WorkerProcesses:
    """Child processes that all run the same function."""

    def __init__(self, target: Callable[..., int], args: tuple[Any, ...], processes: int) -> None:
        self._target = target
        self._args = args
        self._size = processes
        self._context = multiprocessing.get_context("spawn")
        self._children: list[BaseProcess] = []
        self._stops = 0
        self._stop_asked = threading.Event()
        self._woken, self._wake = self._context.Pipe(duplex=False)

    def run(self, signals: Iterable[signal.Signals]) -> int:
        """Keep the children running until asked to stop; then wait for them.

        Args:
            signals: Which signals mean "stop". Each is passed on to every child once.

        Returns:
            0 when all children ended with 0 after the stop request, or by themselves; else 1.
        """
        before = {number: signal.signal(number, self._on_signal) for number in signals}
        try:
            self._children = [self._start() for _ in range(self._size)]
            return self._watch()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for child in self._children:
                if child.is_alive():
                    child.kill()
                child.join()

    def stop(self) -> None:
        """As a signal would: stop, then skip the grace, then end at once."""
        self._stops += 1
        self._stop_asked.set()
        self._wake.send_bytes(b"!")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stop()

    def _start(self) -> BaseProcess:
        child = self._context.Process(target=_child, args=(self._target, self._args))
        child.start()
        return child

    def _watch(self) -> int:
        status = 0
        passed_on = 0
        running = [*self._children]
        while running:
            wait([self._woken, *(child.sentinel for child in running)])
            while self._woken.poll():
                self._woken.recv_bytes()
            for _ in range(passed_on, min(self._stops, 2)):
                for child in running:
                    child.terminate()
            passed_on = min(self._stops, 2)
            if self._stops > 2:
                return 1
            for child in [child for child in running if not child.is_alive()]:
                running.remove(child)
                child.join()
                if child.exitcode == 0:
                    continue
                if self._stops:
                    # One that was still starting holds no jobs yet, and ends by the signal itself.
                    if child.exitcode != -signal.SIGTERM:
                        status = 1
                    continue
                logger.error("a worker process ended with status %s", child.exitcode)
                # Another signal must not have to wait for this pause.
                if not self._stop_asked.wait(RESTART_S):
                    again = self._start()
                    self._children[self._children.index(child)] = again
                    running.append(again)
        return status


def _child(target: Callable[..., int], args: tuple[Any, ...]) -> None:
    # Not sys.exit: a handler's thread that never returns must not keep the process.
    status = target(*args)
    logging.shutdown()
    os._exit(status)
