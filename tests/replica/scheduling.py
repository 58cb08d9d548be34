"""Actors in threads of which one runs at a time: who goes on is drawn from a seed.

Owns: the baton, and time, which passes only when every actor waits. Must not know: what they do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random


class Actor:
    """One of them.

    Attributes:
        name: For messages.
        wake_at: When it goes on at the earliest.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.work = work
        self.wake_at = 0.0
        self.baton = threading.Lock()
        self.baton.acquire()
        self.thread: threading.Thread | None = None


class Scheduler:
    """Runs actors until all of them have returned.

    Attributes:
        now: The time, in seconds.
        failures: What actors have raised.
    """

    def __init__(self, rng: Random) -> None:
        self.now = 0.0
        self.failures: list[BaseException] = []
        self._rng = rng
        self._living: list[Actor] = []
        self._current: Actor | None = None
        self._over = threading.Lock()
        self._over.acquire()

    def add(self, name: str, work: Callable[[], None]) -> Actor:
        """Add an actor, before or while the others run."""
        actor = Actor(name, work)
        actor.wake_at = self.now
        self._living.append(actor)
        if self._current is not None:
            self._start(actor)
        return actor

    def run(self) -> None:
        """Run all of them."""
        for actor in self._living:
            self._start(actor)
        self._current = self._next()
        self._current.baton.release()
        self._over.acquire()

    def pause(self, seconds: float = 0.0) -> None:
        """Called by the actor that runs: others may go on, for so long at least."""
        actor = self._current
        assert actor is not None
        actor.wake_at = self.now + seconds
        chosen = self._next()
        if chosen is not actor:
            self._current = chosen
            chosen.baton.release()
            actor.baton.acquire()

    def _start(self, actor: Actor) -> None:
        actor.thread = threading.Thread(target=self._live, args=(actor,), daemon=True)
        actor.thread.start()

    def _live(self, actor: Actor) -> None:
        actor.baton.acquire()
        try:
            actor.work()
        except BaseException as failure:
            self.failures.append(failure)
        self._living.remove(actor)
        if not self._living:
            self._over.release()
            return
        self._current = self._next()
        self._current.baton.release()

    def _next(self) -> Actor:
        ready = [actor for actor in self._living if actor.wake_at <= self.now]
        if not ready:
            self.now = min(actor.wake_at for actor in self._living)
            ready = [actor for actor in self._living if actor.wake_at <= self.now]
        return ready[0] if len(ready) == 1 else self._rng.choice(ready)
