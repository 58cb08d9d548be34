"""Random moments of the whole core, restored from its replica, against the naive model of then."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from logqueue.core.invariants import check
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.restoring import Cut, restore
from tests.clock import ManualClock
from tests.core.comparing import compare
from tests.core.model import Model
from tests.core.test_model import CoreMachine, eager_tidying
from tests.core.world import World
from tests.effort import IS_THOROUGH, scaled
from tests.replica.moments import WorldReplica
from wal import Log
from wal.testing.simfs import SimFileSystem

__all__ = ["eager_tidying"]

RESTORED_PER_LIFE = 3

_before_drops: list[Callable[[], None]] = []


class ModelMoment(NamedTuple):
    """What the model said when the log was at a transaction."""

    order: int
    at: int
    model: Model


class MomentMachine(CoreMachine):
    """A world, its model and its replica; at the end some moments come back."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        self.moments: list[ModelMoment] = []
        self.rng = Random(seed)
        self.replica: WorldReplica | None = None
        super().begin(seed)
        self.begin_replica()

    def begin_replica(self) -> None:
        store = self.replica.store if self.replica is not None else MemoryStore("memory://model")
        self.replica = WorldReplica(store, self.world, keep_ms=0, chunk_bytes_max=1500)
        _before_drops[:] = [self.ship_all]

    def ship_all(self) -> None:
        """Segments are about to be dropped: a server waits until the replica lists them."""
        assert self.replica is not None
        self.replica.ship(with_segments=True)

    def snap(self) -> None:
        super().snap()
        order = self.world.engine.journal.order - 1
        if self.moments and self.moments[-1].order == order:
            # The log had all of a decision before the model had.
            self.moments.pop()
        if self.model.topics:
            self.moments.append(ModelMoment(order, self.world.now, self.model.copy()))

    @rule(with_segments=st.booleans())
    def ship(self, with_segments: bool) -> None:
        if self.replica is not None:
            self.replica.ship(with_segments=with_segments)

    @rule()
    def kill(self) -> None:
        super().kill(finish=True)

    def cut(self, seed: int) -> None:
        """What a power cut takes may be in the replica; that is another test."""

    def come_back(self, model: Model, *, clean: bool = False, leases: bool = False) -> None:
        super().come_back(model, clean=clean, leases=leases)
        self.world.step()
        self.begin_replica()

    def teardown(self) -> None:
        _before_drops.clear()
        if not hasattr(self, "world"):
            return
        self.world.step()
        assert self.replica is not None
        self.replica.ship(with_segments=self.rng.random() < 0.5)
        for moment in self.rng.sample(self.moments, min(RESTORED_PER_LIFE, len(self.moments))):
            self.assert_comes_back(moment)

    def assert_comes_back(self, moment: ModelMoment) -> None:
        """Begin a life on what was restored: it is as after a kill at that moment."""
        assert self.replica is not None
        fs = SimFileSystem(Random(1))
        restore(self.replica.store, fs, "data", Cut(order=moment.order), parallel=1)
        other = CoreMachine()
        other.model = moment.model.copy()
        other.snapshots = []
        other.world = World(fs, quotas=self.world.quotas, clock=ManualClock(moment.at + 1))
        other.come_back(moment.model.copy(), leases=True)
        check(other.world.state)
        compare(other.world.state, other.model, other.world.now)


@pytest.fixture(autouse=True)
def shipped_before_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the replica have what the log drops."""
    drop = Log.drop_before

    def noted(log: Log, segment: int) -> int:
        for hook in _before_drops:
            hook()
        return drop(log, segment)

    monkeypatch.setattr(Log, "drop_before", noted)


class TestMoments(MomentMachine.TestCase):  # type: ignore[misc,valid-type]
    """Runs the machine."""

    settings = settings(
        max_examples=scaled(6, 400),
        stateful_step_count=40,
        deadline=None,
        derandomize=not IS_THOROUGH,
        print_blob=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
