"""Time that passes only when everything waits, and event loops that live by it.

Owns: the clock, what is due outside any loop, which threads are at work, and the loop that lets
time pass instead of sleeping. Must not know: servers, workers, jobs.

A loop of the ordinary kind sleeps in its selector until its next timer. This one, when nothing is
left to do now, asks how to wait. A driven loop (the workers') then moves time to the
next thing that is due anywhere; a stepped loop (the server's) simply stops and says what it waits
for.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

REAL_WAIT_S = 60.0
"""How long a thread may be at work, in real time, before that is taken for a mistake."""


class Clockwork(Protocol):
    """Something outside the driven loop that time sets going."""

    def next_due(self) -> float | None:
        """When it wants to be called next; None for never."""
        ...

    def fire(self) -> None:
        """Its time has come."""
        ...


class Stuck(RuntimeError):
    """A thread did not come to an end, so time cannot pass."""


class _Errand:
    """A function that runs in a thread of an executor."""

    __slots__ = ("is_asleep", "is_counted")

    def __init__(self) -> None:
        self.is_counted = True
        self.is_asleep = False


class _Sleeper:
    """A thread that waits for a time."""

    def __init__(self, due: float, wake: Callable[[], None]) -> None:
        self._due = due
        self._wake = wake

    def next_due(self) -> float | None:
        """See Clockwork."""
        return self._due

    def fire(self) -> None:
        """See Clockwork."""
        self._wake()


class VirtualTime:
    """A clock in seconds, from 0, and everything that is due by it.

    Attributes:
        driver: The thread that lets time pass now; None while none does.
    """

    def __init__(self) -> None:
        self.driver: int | None = None
        self._seconds = 0.0
        self._lock = threading.Lock()
        self._clockworks: list[Clockwork] = []
        self._errands: set[_Errand] = set()
        self._local = threading.local()
        self._poke: Callable[[], None] = lambda: None

    def now(self) -> float:
        """The time."""
        return self._seconds

    def add(self, clockwork: Clockwork) -> None:
        """Call this one when it is due, from now on."""
        with self._lock:
            self._clockworks.append(clockwork)

    def remove(self, clockwork: Clockwork) -> None:
        """Never call it again."""
        with self._lock:
            if clockwork in self._clockworks:
                self._clockworks.remove(clockwork)

    def next_due(self) -> float | None:
        """When the first clockwork is due."""
        with self._lock:
            clockworks = [*self._clockworks]
        dues = [due for work in clockworks if (due := work.next_due()) is not None]
        return min(dues, default=None)

    def move_to(self, seconds: float) -> None:
        """Let time pass up to here; what is due on the way comes in its order."""
        while (due := self.next_due()) is not None and due <= seconds:
            self._seconds = max(self._seconds, due)
            with self._lock:
                clockworks = [*self._clockworks]
            for work in clockworks:
                own_due = work.next_due()
                if own_due is not None and own_due <= self._seconds:
                    work.fire()
        self._seconds = max(self._seconds, seconds)

    # -- threads ---------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work, so that time must not advance."""
        with self._lock:
            return any(errand.is_counted and not errand.is_asleep for errand in self._errands)

    def begin_errand(self) -> _Errand:
        """A function is about to run in a thread."""
        errand = _Errand()
        with self._lock:
            self._errands.add(errand)
        return errand

    def end_errand(self, errand: _Errand) -> None:
        """It has returned, or nothing waits for it."""
        with self._lock:
            errand.is_counted = False
            self._errands.discard(errand)

    def run_errand(self, errand: _Errand, call: Callable[[], T]) -> T:
        """Run it, in the thread."""
        self._local.errand = errand
        try:
            return call()
        finally:
            self._local.errand = None

    def wait_in_thread(self, due: float | None, until: threading.Event) -> None:
        """Make the calling thread wait for an event, or for a time; it counts as idle meanwhile."""
        errand: _Errand | None = getattr(self._local, "errand", None)
        self._set_asleep(errand, True)
        sleeper: _Sleeper | None = None

        def wake() -> None:
            assert sleeper is not None
            self.remove(sleeper)
            self._set_asleep(errand, False)
            until.set()

        if due is not None:
            sleeper = _Sleeper(due, wake)
            self.add(sleeper)
        self._poke()
        until.wait()
        self._set_asleep(errand, False)

    def _set_asleep(self, errand: _Errand | None, is_asleep: bool) -> None:
        if errand is not None:
            with self._lock:
                errand.is_asleep = is_asleep

    def poke_with(self, poke: Callable[[], None]) -> None:
        """How to make the driven loop look again."""
        self._poke = poke


OnIdle = Callable[[float | None], bool]
"""Called with the seconds a loop would sleep (None: forever); says whether to wait for events."""


class _IdleSelector(selectors.DefaultSelector):
    """A selector that asks before it sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.on_idle: OnIdle = lambda timeout: True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Events that are there, or that come while waiting is what is wanted."""
        found = super().select(0)
        if found or timeout == 0:
            return found
        if self.on_idle(timeout):
            found = super().select(REAL_WAIT_S)
            if not found:
                raise Stuck(
                    f"a handler's thread has been at work for {REAL_WAIT_S:g} s of real time; "
                    "under virtual time handlers sleep with MemoryServer.sleep, not time.sleep"
                )
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual."""

    def __init__(self, time: VirtualTime) -> None:
        self._virtual = time
        self._idle_selector = _IdleSelector()
        super().__init__(self._idle_selector)

    def time(self) -> float:
        """The virtual time."""
        return self._virtual.now()

    def ask_before_sleep(self, on_idle: OnIdle) -> None:
        """Whom to ask when nothing is left to do now."""
        self._idle_selector.on_idle = on_idle

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """As usual; time does not advance while the function runs."""
        time = self._virtual
        errand = time.begin_errand()
        future = super().run_in_executor(executor, time.run_errand, errand, lambda: func(*args))
        future.add_done_callback(lambda _: time.end_errand(errand))
        return future
