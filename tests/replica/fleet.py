"""Servers on simulated disks that share one simulated store, stepped one after the other.

Owns: the servers, their disks, the time, and what clients were promised. Must not know: what a test
does with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from logqueue.core import commands as cmd
from logqueue.errors import LogqueueError
from logqueue.model.config import TopicOptions
from logqueue.server.engine.pending import Pending
from logqueue.server.runtime import Runtime
from logqueue.server.settings import Settings
from logqueue.server.storage.replication import Replication
from logqueue.testing.simulated_store import (
    NO_FAULTS,
    SimulatedObjects,
    SimulatedStore,
    StoreCall,
    StoreFaults,
)
from tests.clock import ManualClock
from tests.core.world import keyed, pack, wish
from wal.testing.simfs import SimCrash, SimFileSystem

SEGMENT_BYTES = 8192
TIMEOUT_MS = 10_000


class FleetTime:
    """Both clocks of all servers.

    Attributes:
        meanwhile: Called when time has passed: what others do while one waits.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.now_s = 1000.0
        self.meanwhile: Callable[[], None] = lambda: None

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
        self.clock.advance(round(seconds * 1000))
        self.meanwhile()


class Asked:
    """A request and its answer.

    Attributes:
        answer: The result; None before, and when it was refused.
        refusal: Why it was refused.
    """

    def __init__(self, pending: Pending[Any]) -> None:
        self.answer: Any = None
        self.refusal: LogqueueError | None = None
        pending.when_ready(self._take)

    def is_granted(self) -> bool:
        """Whether it was answered, with no refusal."""
        return self.answer is not None

    def _take(self, pending: Pending[Any]) -> None:
        try:
            self.answer = pending.answer()
        except LogqueueError as refusal:
            self.refusal = refusal


class Machine:
    """A server on a disk; both may be lost.

    Attributes:
        fs: The disk.
        store: Its way to the replica.
        runtime: The server, while it runs.
    """

    def __init__(
        self,
        name: str,
        shared: SimulatedObjects,
        time: FleetTime,
        *,
        mode: str = "sync",
        faults: StoreFaults = NO_FAULTS,
        seed: int | str = 0,
        **settings: Any,
    ) -> None:
        self.name = name
        self.time = time
        self.fs = SimFileSystem(Random(f"{name}/{seed}"))
        self.crash_in: int | None = None
        self.store = SimulatedStore(
            shared,
            caller=name,
            seed=seed,
            faults=faults,
            pause=time.pass_s,
            on_call=self._called,
        )
        self.runtime: Runtime | None = None
        self.settings: dict[str, Any] = {"replica_mode": mode, **settings}
        self._starts = 0
        self._rng = Random(f"machine/{name}/{seed}")

    def _called(self, call: StoreCall, moment: str) -> None:
        if self.crash_in is not None:
            if not self.crash_in:
                raise SimCrash(f"{self.name} at {call}, {moment}")
            self.crash_in -= 1

    # -- life ------------------------------------------------------------------------------------

    @property
    def replication(self) -> Replication:
        """Of the server that runs."""
        assert self.runtime is not None
        assert self.runtime.replication is not None
        return self.runtime.replication

    @property
    def state(self) -> Any:
        """Of the server that runs."""
        assert self.runtime is not None
        return self.runtime.engine.state

    def start(self, **settings: Any) -> Runtime:
        """Start a server on the disk; inside a running loop."""
        assert self.runtime is None
        runtime = self.made(**settings)
        runtime.recover()
        runtime.begin()
        self.runtime = runtime
        return runtime

    def made(self, **settings: Any) -> Runtime:
        """A server of the disk that does nothing yet."""
        self._starts += 1
        start = self._starts
        set_damage_aside = settings.pop("set_damage_aside", False)
        return Runtime(
            Settings(
                **{
                    "data_dir": "data",
                    "replica": "sim://replica",
                    "advertise": f"http://{self.name}:4000",
                    "segment_max_bytes": SEGMENT_BYTES,
                    "replica_timeout_ms": TIMEOUT_MS,
                    **self.settings,
                    **settings,
                }
            ),
            fs=self.fs,
            clock=self.time.clock,
            set_damage_aside=set_damage_aside,
            is_stepped=True,
            open_store=lambda url: self.store,
            random_bytes=lambda log, length: Random(f"{log}/{self.name}/{start}").randbytes(length),
            monotonic=lambda: self.time.now_s,
            pause=self.time.pass_s,
        )

    def kill(self) -> None:
        """As by SIGKILL."""
        self._lose(self.fs.kill_clone())

    def cut_power(self) -> None:
        """The disk has what was synced, and of the rest what chance leaves."""
        self._lose(self.fs.crash_clone(Random(self._rng.getrandbits(64))))

    def burn(self) -> None:
        """The disk is gone, too."""
        self._lose(SimFileSystem(Random(self._rng.getrandbits(64))))

    def _lose(self, fs: SimFileSystem) -> None:
        # What it does from here on never happened.
        self.fs = fs
        self.crash_in = None
        self.runtime = None

    async def stop(self) -> None:
        """An orderly end."""
        runtime, self.runtime = self.runtime, None
        assert runtime is not None
        runtime.drain()
        await runtime.stop()

    # -- steps -----------------------------------------------------------------------------------

    async def turn(self) -> None:
        """Let the event loop do what is due."""
        for _ in range(4):
            await asyncio.sleep(0)

    async def write_disk(self) -> None:
        """Let the committer do all it can."""
        assert self.runtime is not None
        await self.turn()
        journal = self.runtime.engine.journal
        barrier = self.runtime.service.barrier
        assert barrier is not None
        journal.flush_leases()
        while journal.jobs.step():
            self.replication.note_advance()
            barrier.notify()
        await self.turn()

    async def ship(self) -> float:
        """A step of the thread that ships."""
        delay_s = self.replication.ship_step()
        await self.turn()
        return delay_s

    async def rest(self) -> None:
        """Let it do all it can, without time passing."""
        await self.write_disk()
        for _ in range(100):
            if await self.ship():
                return

    # -- requests --------------------------------------------------------------------------------

    def ask(self, command: cmd.Command[Any]) -> Asked:
        """Submit a command, as a request does."""
        assert self.runtime is not None
        dispatcher = self.runtime.service.require_serving()
        return Asked(dispatcher.submit(command, lambda _, result, spent: result, None))

    async def put(self, topic: str = "a", **config: Any) -> None:
        """Create a topic whose promises are kept by the disk, and the replica."""
        options = msgspec.convert({"durability": "fsync", **config}, TopicOptions).resolved()
        self.ask(cmd.PutTopic(topic, options))
        await self.rest()

    def append(self, *values: object, topic: str = "a") -> Asked:
        """Append values to a topic."""
        records = [wish(value) for value in values]
        return self.ask(cmd.Append(topic, pack(records), len(records), keyed=keyed(records)))

    def values(self, topic: str = "a") -> list[Any]:
        """What a topic holds."""
        if topic not in self.state.topics:
            return []
        batches = self.state.topics[topic].batches
        return [msgspec.json.decode(texts[0]) for b in batches for _, _, texts in b.records()]


class Fleet:
    """Some machines and their store."""

    def __init__(self, mode: str = "sync", **settings: Any) -> None:
        self.time = FleetTime()
        self.shared = SimulatedObjects()
        self.a, self.b = (
            Machine(name, self.shared, self.time, mode=mode, **settings) for name in ("a", "b")
        )


def fleet_test(scene: Callable[[], Any]) -> Callable[[], None]:
    """Run an asynchronous test in a loop of its own."""

    def run() -> None:
        asyncio.run(scene())

    run.__name__ = scene.__name__
    run.__doc__ = scene.__doc__
    return run
