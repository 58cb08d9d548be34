"""Priorities, ages and groups against a naive model, through all else that jobs live through."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.core.order_model import OrderModel
from tests.core.test_lifecycle_model import NODES, LifecycleMachine, eager_tidying
from tests.core.world import World
from tests.effort import IS_THOROUGH, scaled
from wal.testing.simfs import SimFileSystem

__all__ = ["eager_tidying"]

RECORD = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.sampled_from([1, 1, 4, 9]),
        "group": st.sampled_from("abc"),
        "key": st.sampled_from("kl"),
        "delay_ms": st.sampled_from([50, 400]),
        "ttl_ms": st.sampled_from([900]),
    },
)
GROUPS = st.sampled_from(
    [
        None,
        {"mode": "fifo"},
        {"mode": "fair"},
        {"mode": "fair", "weights": {"a": 2}, "max_in_flight_per_group": 2},
        {"mode": "fair", "rate_per_group": {"per_s": 10, "burst": 2}},
        {"mode": "fifo", "rate_per_group": {"per_s": 5, "burst": 1}},
    ]
)
NO_GROUPS = {"weights": None, "max_in_flight_per_group": None, "rate_per_group": None}
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "groups": GROUPS,
        "priority_ageing_ms": st.sampled_from([0, 0, 60, 300]),
        "ttl_ms": st.sampled_from([0, 0, 900]),
        "dead_letter": st.sampled_from([None, "letters"]),
        "archive": st.sampled_from([None, "done"]),
        "paused": st.sampled_from([False, False, False, True]),
        "max_in_flight": st.sampled_from([0, 0, 4]),
        "cap_records": st.sampled_from([0, 0, 0, 8]),
        "leases_durable": st.booleans(),
    },
)


class OrderMachine(LifecycleMachine):
    """The same world, with another order of claims."""

    model: OrderModel

    @initialize(durable=st.booleans(), seed=st.integers(0, 2**32 - 1), groups=GROUPS)
    def begin(self, durable: bool, seed: int, groups: dict[str, Any] | None) -> None:
        self.number = 0
        self.world = World(SimFileSystem(Random(seed)))
        self.world.put("letters", type="log", durability="fsync")
        self.world.put("done", type="log", durability="fsync")
        self.world.put("noise", durability="fsync")
        put = self.world.put(
            durability="fsync", leases_durable=durable, lease_ms=200, groups=groups
        )
        self.model = OrderModel(put.config)

    @rule(records=st.lists(RECORD, min_size=1, max_size=5))
    def write(self, records: list[dict[str, Any]]) -> None:
        self.write_records(records)

    @rule(wanted=st.integers(1, 6), node=NODES, stream=st.sampled_from([0, 0, 5]))
    def claim(self, wanted: int, node: str, stream: int) -> None:
        self.tick()
        now = self.world.now
        chosen = self.world.take(wanted, node=node, stream=stream)
        self.model.require_right(now, wanted, chosen)
        self.model.lease(now, chosen, (node, now + 200, stream))

    @rule(changes=CHANGES)
    def configure(self, changes: dict[str, Any]) -> None:
        if changes.get("groups") is not None:
            # A patch merges objects.
            changes["groups"] = {**NO_GROUPS, **changes["groups"]}
        before = self.model.config.groups
        self.configure_queue(changes)
        if self.model.config.groups != before:
            self.model.refilled_at.clear()


class TestOrder(OrderMachine.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(
        max_examples=scaled(40, 1500),
        stateful_step_count=40,
        deadline=None,
        derandomize=not IS_THOROUGH,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
