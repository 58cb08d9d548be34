"""What is read in one turn of the event loop is decided together, and nobody can tell."""

from __future__ import annotations

from contextlib import closing
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logqueue.testing.core import Exchange
from tests.effort import scaled
from tests.server.memory import Memory

T = TypeVar("T")

Wanted = tuple[str, str, object]

TOPICS = st.sampled_from(["q", "q", "q", "q", "log", "absent"])
NODES = st.sampled_from(["v", "w"])
SEQS = st.lists(st.integers(1, 12), min_size=1, max_size=4)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "cap_records": st.sampled_from([9, 12]),
        "discard": st.sampled_from(["old", "reject"]),
        "max_in_flight": st.sampled_from([8, 9]),
        "claim_rate": st.just({"per_s": 1, "burst": 8}),
        "retry_backoff": st.just({"kind": "linear", "base_ms": 100, "step_ms": 50}),
        "max_deliveries": st.just(1),
        "dead_letter": st.just("letters"),
        "archive": st.just("archive"),
        "durability": st.sampled_from(["fsync", "disk", "memory", "ephemeral"]),
        "leases_durable": st.booleans(),
    },
)


def posted(verb: str, members: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Wanted]:
    """A request of one kind."""
    return st.builds(
        lambda topic, body: ("POST", f"topics/{topic}{verb}", body),
        TOPICS,
        st.one_of(members, members, members, members, st.just({"wrong": []})),
    )


def settling(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The body of a request that settles jobs."""
    return st.fixed_dictionaries({"node": NODES, "seqs": SEQS}, optional=more)


RECORD = st.fixed_dictionaries(
    {"data": st.integers(0, 99)},
    optional={"tag": st.sampled_from(["a", "b"]), "meta": st.just({"m": 1})},
)
KEYED = st.fixed_dictionaries(
    {"data": st.integers(0, 99), "key": st.sampled_from(["x", "y"])},
    optional={"on_conflict": st.sampled_from(["replace", "keep", "reject"])},
)
DELAYED = st.fixed_dictionaries({"data": st.integers(0, 99), "delay_ms": st.just(50)})
RECORDS = st.lists(
    st.one_of(RECORD, RECORD, RECORD, RECORD, KEYED, DELAYED), min_size=1, max_size=3
)
WRITE = st.fixed_dictionaries(
    {"records": RECORDS},
    optional={"node": NODES, "idempotency_key": st.sampled_from(["k", "l"])},
)
CLAIM = st.fixed_dictionaries(
    {"node": NODES},
    optional={"max": st.integers(1, 4), "lease_ms": st.sampled_from([500, 5000])},
)
REQUESTS = st.lists(
    st.one_of(
        posted("", WRITE),
        posted("", WRITE),
        posted("/claim", CLAIM),
        posted("/ack", settling()),
        posted("/nack", settling(delay_ms=st.sampled_from([0, 70]), error=st.just("e"))),
        posted("/reject", settling(error=st.just("e"))),
        posted("/extend", settling(lease_ms=st.sampled_from([500, 5000]))),
    ),
    min_size=2,
    max_size=9,
)


def prepared(config: dict[str, Any]) -> Memory:
    """A server with a queue of eight jobs, six of them leased to two nodes."""
    server = Memory()
    server.queue(lease_ms=1000, **config)
    server.call("PUT", "topics/log", {"type": "log"})
    server.append(*range(8))
    server.take("v", max=3)
    server.take("w", max=3)
    return server


def told(exchange: Exchange) -> tuple[int, dict[str, Any]]:
    """The reply without what differs from run to run."""
    assert exchange.is_over
    body: dict[str, Any] = msgspec.json.decode(exchange.take())
    for member in ("performance", "log_id"):
        body.pop(member, None)
    return exchange.status, body


def view(server: Memory) -> list[object]:
    """All that a client can see."""
    found: list[object] = []
    for name in ("q", "log", "absent", "letters", "archive"):
        found.append(told(server.begin("GET", f"topics/{name}?touch=0")))
        found.append(told(server.begin("POST", f"topics/{name}/diff", {"from_seq": 0})))
    found.append(told(server.begin("GET", "topics/q/jobs?page_size=100")))
    found.append(told(server.begin("GET", "topics/q/workers")))
    return found


@settings(
    max_examples=scaled(40, 400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(config=CONFIGS, wanted=REQUESTS)
def test_a_turn_equals_its_requests_one_by_one(
    config: dict[str, Any], wanted: list[Wanted]
) -> None:
    with closing(prepared(config)) as together, closing(prepared(config)) as one_by_one:
        answers = [told(exchange) for exchange in together.begin_together(*wanted)]
        # What is wrong by itself, or finds no topic, comes first. Requests of one kind on one topic
        # come in their order, behind the first of them.
        paths = [
            path if answers[at][0] not in (400, 404) else ""
            for at, (_, path, _) in enumerate(wanted)
        ]
        order = sorted(
            range(len(wanted)), key=lambda at: bool(paths[at]) * (1 + paths.index(paths[at]))
        )
        for at in order:
            assert answers[at] == told(one_by_one.begin(*wanted[at])), wanted[at]
        assert view(together) == view(one_by_one)
        for server in (together, one_by_one):
            server.wait(0.2)
            server.core.restart(kill=True)
        assert view(together) == view(one_by_one)
