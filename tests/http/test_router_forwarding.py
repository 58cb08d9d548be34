"""What routers copy: shape, order, filter, guarantees, hops; who sees it and when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.http.api import Api, numbered, seqs_of
from tests.http.expect import Json, eventually, now_ms, ok
from tests.http.routed import Route, data, forwarded, made

STAMP_KEYS = {"key", "router", "source", "source_instance", "epoch", "source_seq"}


@pytest.fixture
def route(api: Api, topic: str) -> Route:
    """A router between two fresh logs."""
    return made(api, topic)


# -- copies -------------------------------------------------------------------------------------


def test_a_copy(api: Api, route: Route) -> None:
    """Fresh seq and time; data, meta, tag and node as in the source."""
    api.append(route.dest, "own")
    record = {"data": {"z": 1, "a": [None]}, "tag": "t", "node": "n", "meta": {"m": 1}}
    before = now_ms()
    api.append_many(route.source, [record, {"data": None, "meta": [1]}, {"data": 2, "tag": ""}])
    own, first, second, third = api.read(route.dest, include_tags=True)
    assert own["data"] == "own"
    assert {name: first[name] for name in first if name != "$ts"} == {
        "$seq": 2,
        "$node": "n",
        "$tag": "t",
        "data": {"z": 1, "a": [None]},
        "meta": {"m": 1},
    }
    assert before - 1 <= first["$ts"] <= now_ms() + 1
    assert set(second) == {"$seq", "$ts", "data", "meta"}
    assert (second["$seq"], second["data"], second["meta"]) == (3, None, [1])
    assert (third["$seq"], third["$tag"]) == (4, "")
    assert forwarded(api, route.router) == 3


def test_nothing_from_before(api: Api, topic: str) -> None:
    """Case 108: it starts at the source's head."""
    source, dest = f"{topic}s", f"{topic}d"
    api.make_log(source)
    api.append(source, "before")
    api.make_router(topic, source, dest)
    api.append(source, "after")
    assert data(api, dest) == ["after"]
    assert forwarded(api, topic) == 1
    ok(api.delete_router(topic))
    api.append(source, "between")
    api.make_router(topic, source, dest)
    api.append(source, "again")
    assert data(api, dest) == ["after", "again"]


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({}, ["$node", "$tag"]),
        ({"preserve_node": False}, ["$tag"]),
        ({"preserve_tag": False}, ["$node"]),
        ({"preserve_node": False, "preserve_tag": False}, []),
        ({"preserve_node": False, "guarantee": "exactly_once"}, ["$tag"]),
        ({"preserve_tag": False, "filter": "t"}, ["$node"]),
    ],
    ids=str,
)
def test_what_is_preserved(api: Api, topic: str, options: Json, keys: list[str]) -> None:
    """Node and tag unless declined; the filter looks at the original tag."""
    route = made(api, topic, **options)
    api.append_many(route.source, [{"data": 1, "tag": "t", "node": "n"}])
    [record] = api.read(route.dest, include_tags=True, include_meta=False)
    assert set(record) == {"$seq", "$ts", "data"} | {*keys}


def test_preserved_nodes_are_filtered_at_the_destination(api: Api, topic: str) -> None:
    """A reader's own records are its own there too, unless the router drops the node."""
    kept, dropped = f"{topic}kept", f"{topic}dropped"
    api.make_log(topic)
    api.make_router(kept, topic, kept)
    api.make_router(dropped, topic, dropped, preserve_node=False)
    api.append_many(topic, [{"data": 1, "node": "me"}, {"data": 2, "node": "you"}])
    assert [record["data"] for record in api.read(kept, node="me")] == [2]
    assert [record["data"] for record in api.read(dropped, node="me")] == [1, 2]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5]),
        ("a", [2]),
        ("a*", [2, 3, 4]),
        ("*", [1, 2, 3, 4, 5]),
        ("", [1]),
        (["tag", "Eq", "a*"], [4]),
        (["tag", "Glob", "ab*"], [3]),
        ("no", []),
    ],
    ids=str,
)
def test_filters(api: Api, topic: str, wanted: object, expected: list[int]) -> None:
    """Case 109: what does not match, untagged records above all, is neither copied nor counted."""
    route = made(api, topic, filter=wanted)
    tags = [None, "", "a", "ab", "a*", "b"]
    api.append_many(
        route.source,
        [{"data": n, **({} if tag is None else {"tag": tag})} for n, tag in enumerate(tags)],
    )
    assert data(api, route.dest) == expected
    assert seqs_of(api.read(route.dest)) == list(range(1, len(expected) + 1))
    assert forwarded(api, route.router) == len(expected)


def test_a_new_filter_keeps_the_place(api: Api, topic: str) -> None:
    """Case 105: options change from here on, nothing is copied twice or anew."""
    route = made(api, topic, filter="a")
    both = [{"data": "1a", "tag": "a"}, {"data": "1b", "tag": "b"}]
    api.append_many(route.source, both)
    assert data(api, route.dest) == ["1a"]
    ok(api.put_router(route.router, source=route.source, dest=route.dest, filter="b"))
    api.append_many(route.source, [{"data": "2a", "tag": "a"}, {"data": "2b", "tag": "b"}])
    assert data(api, route.dest) == ["1a", "2b"]
    ok(api.put_router(route.router, source=route.source, dest=route.dest))
    api.append_many(route.source, [{"data": "3a", "tag": "a"}, {"data": 3}])
    assert data(api, route.dest) == ["1a", "2b", "3a", 3]
    assert forwarded(api, route.router) == 4


def test_order(api: Api, route: Route) -> None:
    """That of the source, under many writers and batches of all sizes."""

    def write(number: int) -> None:
        for start in range(0, 60, 6):
            values = [f"{number}.{start + n}" for n in range(number + 1)]
            ok(api.write(route.source, [{"data": value} for value in values]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(6)))
    assert data(api, route.dest) == data(api, route.source)
    assert len(data(api, route.dest)) == 210


def test_large_batches(api: Api, route: Route) -> None:
    """10 000 records of one write, and a megabyte in one record."""
    ok(api.write(route.source, numbered(10_000), query="?return_seqs=false"))
    api.append(route.source, "x" * 1_000_000)
    assert eventually(lambda: api.facts(route.dest, "count") == (10_001,))
    found = data(api, route.dest)
    assert found[:10_000] == list(range(10_000))
    assert len(found[-1]) == 1_000_000
    assert forwarded(api, route.router) == 10_001
    for name in (route.source, route.dest):
        ok(api.delete_topic(name))


def test_mixed_with_direct_writes(api: Api, route: Route) -> None:
    """A destination may be written to as any topic; idempotency keys are its own."""
    api.append(route.source, "copy 1")
    assert len(data(api, route.dest)) == 1
    ok(api.write(route.dest, [{"data": "own 1"}], idempotency_key="k"))
    ok(api.write(route.source, [{"data": "copy 2"}], idempotency_key="k"))
    assert ok(api.write(route.dest, [{"data": "no"}], idempotency_key="k"))["deduped"] is True
    assert data(api, route.dest) == ["copy 1", "own 1", "copy 2"]


def test_a_write_that_is_deduped_is_copied_once(api: Api, route: Route) -> None:
    """There is one record in the source."""
    for _ in range(3):
        ok(api.write(route.source, numbered(2), idempotency_key="k"))
    assert data(api, route.dest) == [0, 1]


def test_deleted_before_they_were_copied(api: Api, topic: str) -> None:
    """Passed over silently: no copy, no gap, not counted."""
    route = made(api, topic, dest={"cap_records": 1, "discard": "reject"})
    api.append(route.dest, "in the way")
    api.append_many(route.source, [{"data": n, "tag": "even" if n % 2 == 0 else "odd"}
                                   for n in range(6)])  # fmt: skip
    ok(api.delete(route.source, match="odd"))
    ok(api.put(route.dest, durability="memory"))
    assert eventually(lambda: data(api, route.dest) == ["in the way", 0, 2, 4])
    assert seqs_of(api.read(route.dest)) == [1, 2, 3, 4]
    assert ok(api.diff(route.dest))["tombstone"] is None
    assert forwarded(api, route.router) == 3


@pytest.mark.parametrize("source", ["ephemeral", "memory", "disk", "fsync"])
@pytest.mark.parametrize("dest", ["ephemeral", "memory", "disk", "fsync"])
def test_topics_of_all_classes(api: Api, topic: str, source: str, dest: str) -> None:
    """Each pair of classes; small batches and large ones."""
    route = made(api, topic, source={"durability": source}, dest={"durability": dest})
    for size in (1, 200, 3):
        ok(api.write(route.source, numbered(size)))
        assert [record["data"] for record in api.read(route.dest)][-size:] == list(range(size))
    assert data(api, route.dest) == data(api, route.source)


def test_a_source_that_is_a_queue(api: Api, topic: str) -> None:
    """Jobs are copied as they are written; what happens to them later does not matter."""
    queue, dest = f"{topic}q", f"{topic}d"
    api.make_queue(queue)
    api.make_router(topic, queue, dest)
    api.append(queue, 1, 2)
    assert data(api, dest) == [1, 2]
    ok(api.ack(queue, seqs_of(api.claimed(queue, max=2))))
    assert data(api, dest) == [1, 2]


def test_dead_letters_are_forwarded(api: Api, topic: str) -> None:
    """Copies in a dead-letter topic are normal records for its routers."""
    queue, dlq, dest = f"{topic}q", f"{topic}dlq", f"{topic}d"
    api.make_log(dlq)
    api.make_queue(queue, max_deliveries=1, dead_letter=dlq)
    api.make_router(topic, dlq, dest)
    api.append(queue, "bad")
    ok(api.nack(queue, seqs_of(api.claimed(queue))))
    assert api.claimed(queue) == []
    [record] = api.read(dest)
    assert (record["data"], record["meta"]["$dead_letter_from"]) == ("bad", queue)


# -- guarantees ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        (None, {}),
        ({}, {}),
        ({"m": {"n": 1}}, {"m": {"n": 1}}),
        ([1, 2], {"$router_meta": [1, 2]}),
        ("text", {"$router_meta": "text"}),
        (7, {"$router_meta": 7}),
        ({str(n): n for n in range(63)}, {str(n): n for n in range(63)}),
        (
            {str(n): n for n in range(64)},
            {"$router_meta": {str(n): n for n in range(64)}},
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_stamps(api: Api, topic: str, meta: object, kept: Json) -> None:
    """exactly_once says in meta what the copy is a copy of; what has no room is wrapped."""
    route = made(api, topic, guarantee="exactly_once")
    ok(api.write(route.source, [{"data": 1}, {"data": 2, "meta": meta}]))
    record = api.read(route.dest)[1]
    stamp = record["meta"].pop("$router")
    assert record["meta"] == kept
    assert set(stamp) == STAMP_KEYS
    assert (stamp["router"], stamp["source"], stamp["source_seq"]) == (
        route.router,
        route.source,
        2,
    )
    assert isinstance(stamp["key"], str)


def test_stamps_on_the_largest_records(api: Api, topic: str) -> None:
    """What a stamp adds does not count against the limits of a write."""
    route = made(api, topic, guarantee="exactly_once")
    whole = "x" * ((1 << 20) - 2)
    meta = {"m": "y" * ((16 << 10) - 8)}
    ok(api.write(route.source, [{"data": whole}, {"data": 1, "meta": meta}, {"data": "last"}]))
    first, second, third = [api.read(route.dest, from_seq=seq, limit=1)[0] for seq in range(3)]
    assert (first["data"], third["data"]) == (whole, "last")
    assert second["meta"].pop("$router")["source_seq"] == 2
    assert second["meta"] == meta


def test_stamps_are_unique(api: Api, topic: str) -> None:
    """One key for each copy; the same place names the same instance."""
    route = made(api, topic, guarantee="exactly_once")
    for start in range(0, 20, 5):
        ok(api.write(route.source, numbered(5, start)))
    stamps = [record["meta"]["$router"] for record in api.read(route.dest)]
    assert [stamp["source_seq"] for stamp in stamps] == list(range(1, 21))
    assert len({stamp["key"] for stamp in stamps}) == 20
    assert len({(str(stamp["source_instance"]), str(stamp["epoch"])) for stamp in stamps}) == 1


@pytest.mark.parametrize("meta", [None, {"m": 1}, [1]], ids=str)
def test_no_stamps_otherwise(api: Api, route: Route, meta: object) -> None:
    """at_least_once leaves meta as it is."""
    ok(api.write(route.source, [{"data": 1, "meta": meta}]))
    assert api.read(route.dest)[0].get("meta") == meta


def test_stamps_on_the_way_on(api: Api, topic: str) -> None:
    """The next router puts its own in place of the one before."""
    a, b, c = (f"{topic}{letter}" for letter in "abc")
    api.make_router(f"{topic}1", a, b, guarantee="exactly_once")
    api.make_router(f"{topic}2", b, c, guarantee="exactly_once")
    ok(api.write(a, [{"data": 1}]))
    ok(api.write(b, [{"data": 0}]))
    ok(api.write(a, [{"data": 2, "meta": {"m": 1}}]))
    assert eventually(lambda: api.facts(c, "count") == (3,))
    metas = [record["meta"] for record in api.read(c)]
    assert [meta["$router"]["source_seq"] for meta in metas] == [1, 2, 3]
    assert {meta["$router"]["source"] for meta in metas} == {b}
    assert metas[2]["m"] == 1


def test_two_routers_between_the_same_topics(api: Api, topic: str) -> None:
    """Case 106: each forwards its copy, in its order."""
    route = made(api, topic)
    api.make_router(f"{topic}r2", route.source, route.dest, filter="a")
    api.append_many(route.source, [{"data": n, "tag": "ab"[n % 2]} for n in range(6)])
    assert eventually(lambda: len(data(api, route.dest)) == 9)
    assert sorted(data(api, route.dest)) == [0, 0, 1, 2, 2, 3, 4, 4, 5]
    assert [forwarded(api, name) for name in (route.router, f"{topic}r2")] == [6, 3]


# -- chains and loops ---------------------------------------------------------------------------


def test_a_fan_of_routers(api: Api, topic: str) -> None:
    """Each destination gets its own copies."""
    for number in range(5):
        api.make_router(f"{topic}r{number}", f"{topic}s", f"{topic}d{number}")
    ok(api.write(f"{topic}s", numbered(10)))
    for number in range(5):
        assert data(api, f"{topic}d{number}") == list(range(10))


def test_eight_hops(api: Api, topic: str) -> None:
    """A record at hop 8 is not forwarded further, nor counted."""
    for number in range(10):
        api.make_router(f"{topic}r{number}", f"{topic}{number}", f"{topic}{number + 1}")
    api.append(f"{topic}0", "traveller")

    def arrived(number: int, what: str) -> bool:
        return data(api, f"{topic}{number}") == [what]

    for number in range(1, 9):
        assert eventually(partial(arrived, number, "traveller"))
    assert [forwarded(api, f"{topic}r{number}") for number in range(10)] == [1] * 8 + [0, 0]
    assert data(api, f"{topic}9") == []
    api.append(f"{topic}8", "fresh")
    assert eventually(partial(arrived, 10, "fresh"))


def test_a_loop_ends_by_itself(api: Api, topic: str) -> None:
    """allow_cycle: eight hops in all, five records here and four there; writes stay prompt."""
    a, b = f"{topic}a", f"{topic}b"
    api.make_log(a)
    api.make_log(b)
    api.make_router(f"{topic}1", a, b)
    api.make_router(f"{topic}2", b, a, allow_cycle=True)
    api.append(a, "round")
    assert eventually(lambda: (api.facts(a, "count"), api.facts(b, "count")) == ((5,), (4,)))
    assert (forwarded(api, f"{topic}1"), forwarded(api, f"{topic}2")) == (4, 4)
    ok(api.write(b, [{"data": "back"}]))
    assert eventually(lambda: (api.facts(a, "count"), api.facts(b, "count")) == ((9,), (9,)))
    assert (forwarded(api, f"{topic}1"), forwarded(api, f"{topic}2")) == (8, 8)


def test_a_filtered_loop(api: Api, topic: str) -> None:
    """Dropping the tag takes copies out of the loop."""
    a, b = f"{topic}a", f"{topic}b"
    api.make_router(f"{topic}1", a, b, filter="go", preserve_tag=False)
    api.make_router(f"{topic}2", b, a, allow_cycle=True, filter="go")
    api.append_many(a, [{"data": 1, "tag": "go"}, {"data": 2}])
    assert data(api, b) == [1]
    assert data(api, a) == [1, 2]
