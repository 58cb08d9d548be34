"""Every state of a job, every verb, every outcome: where a job goes from where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logqueue.core.invariants import check
from logqueue.errors import TopicFull
from tests.core.world import World, wish
from tests.portrait import portrait

Step = Callable[[World], object]


@pytest.fixture
def world() -> World:
    world = World()
    world.put(durability="fsync", leases_durable=True, lease_ms=1000)
    return world


def ready(world: World) -> None:
    world.write("q", "x")


def delayed(world: World) -> None:
    world.write("q", wish("x", delay_ms=500))


def nacked(world: World) -> None:
    in_flight(world)
    world.nack(1, delay_ms=500)


def in_flight(world: World) -> None:
    world.write("q", "x")
    assert world.take() == [1]


def held(world: World) -> None:
    in_flight(world)
    world.patch(on_exhausted="hold")
    world.reject(1, error="bad")
    world.patch(on_exhausted=None)


def outlive(world: World) -> None:
    world.patch(ttl_ms=100)
    world.wait(101)


STATES: dict[str, tuple[Step, str]] = {
    "ready": (ready, "ready"),
    "delayed": (delayed, "delayed"),
    "nacked": (nacked, "delayed"),
    "in_flight": (in_flight, "in_flight"),
    "held": (held, "held"),
}

VERBS: dict[str, Step] = {
    "claim": lambda w: w.take(),
    "ack": lambda w: w.ack(1),
    "nack": lambda w: w.nack(1),
    "nack later": lambda w: w.nack(1, delay_ms=700),
    "reject": lambda w: w.reject(1),
    "extend": lambda w: w.extend(1, lease_ms=5000),
    "cancel": lambda w: w.cancel(1),
    "force": lambda w: w.cancel(1, force=True),
    "purge ready": lambda w: w.purge("ready"),
    "purge all": lambda w: w.purge("ready", "delayed", "in_flight", "held"),
    "release": lambda w: w.let_go(1),
    "delete": lambda w: w.delete(before=9),
    "500 ms": lambda w: w.wait(500),
    "1001 ms": lambda w: w.wait(1001),
    "ttl": outlive,
}

GOES: dict[str, dict[str, str]] = {
    "claim": {"ready": "in_flight"},
    "ack": {"in_flight": "acked"},
    "nack": {"in_flight": "ready"},
    "nack later": {"in_flight": "delayed"},
    "reject": {"in_flight": "rejected"},
    "extend": {},
    "cancel": {
        "ready": "cancelled", "delayed": "cancelled", "nacked": "cancelled", "held": "cancelled",
    },
    "force": dict.fromkeys(STATES, "cancelled"),
    "purge ready": {"ready": "cancelled"},
    "purge all": dict.fromkeys(STATES, "cancelled"),
    "release": {"held": "ready"},
    "delete": dict.fromkeys(STATES, "cancelled"),
    "500 ms": {"delayed": "ready", "nacked": "ready"},
    "1001 ms": {"delayed": "ready", "nacked": "ready", "in_flight": "ready"},
    "ttl": dict.fromkeys(STATES, "expired"),
}  # fmt: skip
"""What changes; whatever is not named here stays as it is."""


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", STATES)
def test_every_verb_from_every_state(world: World, state: str, verb: str) -> None:
    begin, is_state = STATES[state]
    begin(world)
    assert world.states() == {1: is_state}
    VERBS[verb](world)
    becomes = GOES[verb].get(state, is_state)
    world.topic("q")
    check(world.state)
    if becomes in ("ready", "delayed", "in_flight", "held"):
        assert world.states() == {1: becomes} and not world.finished()
    else:
        assert world.states() == {} and world.finished() == {becomes: 1}
    before = portrait(world.state, world.now)
    world.step()
    world.kill()
    world.topic("q")
    if not (state == "in_flight" and verb in ("delete", "ttl")):
        # An orphan's lease does not outlive the process; all else does.
        assert portrait(world.state, world.now) == before


@pytest.mark.parametrize("verb", ["cancel", "force", "ttl", "purge all", "ack", "reject"])
@pytest.mark.parametrize("state", STATES)
def test_the_archive_gets_every_end_once(world: World, state: str, verb: str) -> None:
    world.patch(archive="done")
    STATES[state][0](world)
    outcome = GOES[verb].get(state)
    VERBS[verb](world)
    world.topic("q")
    check(world.state)
    if outcome is None:
        assert "done" not in world.state.topics
        return
    ((seq, _, (data, _, _, _)),) = world.records("done")
    (meta,) = world.meta("done")
    assert (seq, data, meta["$outcome"]) == (1, b'"x"', outcome)
    assert meta["$finished_by"] == ("w" if outcome in ("acked", "rejected") else "")
    assert meta["$deliveries"] == ("0" if state in ("ready", "delayed") else "1")
    assert world.seqs() == []
    world.step()
    world.kill()
    assert world.meta("done") == [meta] and world.seqs() == []


def full_archive(world: World) -> None:
    world.put("done", type="log", cap_records=1, discard="reject", durability="fsync")
    world.write("done", "there is no room behind this")
    world.patch(archive="done")


@pytest.mark.parametrize("verb", ["cancel", "force", "purge all", "ack", "reject"])
@pytest.mark.parametrize("state", ["ready", "delayed", "in_flight", "held"])
def test_without_room_in_the_archive_nothing_ends(world: World, state: str, verb: str) -> None:
    STATES[state][0](world)
    full_archive(world)
    before = portrait(world.state)
    if state in GOES[verb]:
        with pytest.raises(TopicFull):
            VERBS[verb](world)
    else:
        VERBS[verb](world)
    assert portrait(world.state) == before
    world.delete("done", before=9)
    VERBS[verb](world)
    assert world.finished() == ({GOES[verb][state]: 1} if state in GOES[verb] else {})


def test_what_expires_waits_for_room_in_the_archive(world: World) -> None:
    full_archive(world)
    world.write("q", wish("own", ttl_ms=100), "other")
    world.take()
    world.nack(1)
    world.wait(101)
    assert world.take() == [2], "expired jobs are not handed out, though they are still here"
    assert world.states() == {1: "ready", 2: "in_flight"}
    world.delete("done", before=9)
    world.wait(1000)
    assert world.states() == {2: "in_flight"} and world.finished() == {"expired": 1}


@pytest.mark.parametrize(
    ("config", "outcome"),
    [
        ({}, {"rejected": 1}),
        ({"on_exhausted": "drop"}, {"rejected": 1}),
        ({"on_exhausted": "hold"}, {}),
        ({"dead_letter": "letters"}, {}),
        ({"dead_letter": "letters", "on_exhausted": "hold"}, {}),
        ({"dead_letter": "letters", "on_exhausted": "drop"}, {}),
    ],
)
def test_reject_goes_where_the_config_says(
    world: World, config: dict[str, Any], outcome: dict[str, int]
) -> None:
    world.patch(**config)
    in_flight(world)
    world.reject(1, error="why")
    assert world.finished() == outcome
    if "dead_letter" in config:
        (meta,) = world.meta("letters")
        assert meta["$dead_letter_reason"] == "rejected" and meta["$dead_letter_error"] == "why"
        assert world.counters() == (0, 0, 1)
    elif config.get("on_exhausted") == "hold":
        assert world.states() == {1: "held"}


@pytest.mark.parametrize(
    ("config", "state", "finished"),
    [
        ({}, {1: "in_flight"}, {}),
        ({"on_exhausted": "drop"}, {}, {"dropped": 1}),
        ({"on_exhausted": "hold"}, {1: "held"}, {}),
        ({"dead_letter": "letters"}, {}, {}),
        ({"dead_letter": "letters", "on_exhausted": "dead_letter"}, {}, {}),
        ({"dead_letter": "letters", "on_exhausted": "hold"}, {1: "held"}, {}),
        ({"dead_letter": "letters", "on_exhausted": "drop"}, {}, {"dropped": 1}),
    ],
)
@pytest.mark.parametrize("own", [0, 2])
def test_exhausted_jobs_go_where_the_config_says(
    world: World, config: dict[str, Any], state: dict[int, str], finished: dict[str, int], own: int
) -> None:
    world.patch(max_deliveries=7 if own else 2, **config)
    world.write("q", wish("x", max_deliveries=own))
    for _ in range(2):
        assert world.take() == [1]
        world.nack(1, error="again")
    assert world.take() == ([] if config else [1])
    assert world.states() == state and world.finished() == finished
    assert world.counters()[2] == (
        config.get("dead_letter") is not None and not state and not finished
    )
    world.step()
    world.kill()
    assert world.states() == state


def test_a_held_job_survives_all_and_starts_anew(world: World) -> None:
    world.patch(on_exhausted="hold", leases_durable=False)
    in_flight(world)
    world.reject(1, error="poison")
    for _ in range(2):
        world.restart()
        assert world.take() == [] and world.states() == {1: "held"}
    released = world.let_go(1, 1, 2)
    assert (released.released, released.skipped, released.ready, released.held) == (1, [2], 1, 0)
    world.step()
    world.kill()
    (found,) = world.claim()
    assert (found.seq, found.deliveries) == (1, 1)


def test_a_forced_cancel_voids_the_lease(world: World) -> None:
    in_flight(world)
    assert not world.cancel(1).cancelled and world.cancel(1).state == "in_flight"
    assert world.cancel(1, force=True).cancelled
    assert world.ack(1) == (0, [1]) and world.cancel(1) == (1, None, False)


def test_an_ack_of_an_orphan_counts_no_job_twice(world: World) -> None:
    in_flight(world)
    world.delete(before=9)
    assert world.ack(1) == (1, [])
    assert world.finished() == {"cancelled": 1}
    check(world.state)
