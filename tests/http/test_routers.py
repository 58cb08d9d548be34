"""Routers as objects: configure, look, list, delete; refusals, quotas, keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http.api import Api, numbered, router_path
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, ok, refused

DEFAULTS: Json = {
    "preserve_node": True,
    "preserve_tag": True,
    "filter": None,
    "allow_cycle": False,
    "guarantee": "at_least_once",
}
OTHERS: Json = {
    "preserve_node": False,
    "preserve_tag": False,
    "filter": ["tag", "Eq", "x"],
    "allow_cycle": True,
    "guarantee": "exactly_once",
}


@pytest.fixture
def pair(api: Api, topic: str) -> tuple[str, str]:
    """A source and a destination."""
    api.make_log(f"{topic}a")
    api.make_log(f"{topic}b")
    return f"{topic}a", f"{topic}b"


def without(body: Json, *names: str) -> Json:
    """A reply without its timings and some other fields."""
    return {name: value for name, value in body.items() if name not in (*names, "performance")}


# -- PUT and GET --------------------------------------------------------------------------------


def test_the_answers(api: Api, topic: str, pair: tuple[str, str]) -> None:
    """201 and created; then 200; GET is the same without created and with forwarded_total."""
    source, dest = pair
    wanted = {"router": topic, "source": source, "dest": dest, **DEFAULTS}
    reply = api.put_router(topic, source=source, dest=dest)
    assert without(ok(reply, 201)) == {**wanted, "created": True}
    reply = api.put_router(topic, source=source, dest=dest)
    assert without(ok(reply)) == {**wanted, "created": False}
    assert without(ok(api.router(topic))) == {**wanted, "forwarded_total": 0}


def test_all_options(api: Api, topic: str, pair: tuple[str, str]) -> None:
    """As given; create_dest and unknown fields are not echoed."""
    source, dest = pair
    sent = {**OTHERS, "create_dest": True, "no_such": 1}
    body = ok(api.put_router(topic, source=source, dest=dest, **sent), 201)
    assert without(body, "created") == {"router": topic, "source": source, "dest": dest, **OTHERS}
    assert without(ok(api.router(topic)), "forwarded_total") == without(body, "created")


@pytest.mark.parametrize("name", list(OTHERS))
def test_options_are_replaced(api: Api, topic: str, pair: tuple[str, str], name: str) -> None:
    """Case 105: 200; what is left out goes back to its default."""
    source, dest = pair
    api.make_router(topic, source, dest)
    changed = {name: OTHERS[name]}
    body = ok(api.put_router(topic, source=source, dest=dest, **changed))
    assert without(body, "router", "created", "source", "dest") == {**DEFAULTS, **changed}
    assert body["created"] is False
    body = ok(api.put_router(topic, source=source, dest=dest))
    assert without(body, "router", "created", "source", "dest") == DEFAULTS


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, None),
        ("a", ["tag", "Eq", "a"]),
        ("a*", ["tag", "Glob", "a*"]),
        ("*", ["tag", "Glob", "*"]),
        ("", ["tag", "Eq", ""]),
        ("a*b", ["tag", "Eq", "a*b"]),
        ("a**", ["tag", "Glob", "a**"]),
        (["tag", "Eq", "a*"], ["tag", "Eq", "a*"]),
        (["tag", "Glob", "a*"], ["tag", "Glob", "a*"]),
        ("é", ["tag", "Eq", "é"]),
    ],
    ids=str,
)
def test_filters(api: Api, topic: str, pair: tuple[str, str], given: object, shown: object) -> None:
    """Shown as three strings, whatever form was given."""
    source, dest = pair
    body = ok(api.put_router(topic, source=source, dest=dest, filter=given), 201)
    assert body["filter"] == shown
    assert ok(api.router(topic))["filter"] == shown


@pytest.mark.parametrize(
    "name",
    ["{t}", "{t}>x", "{t}a->b", "{t}a:b._-", "{t}" + "x" * 150],
    ids=["plain", "arrow", "arrows", "all", "long"],
)
def test_names(api: Api, topic: str, pair: tuple[str, str], name: str) -> None:
    """Case 26: those of topics, and > after the first character; percent-decoded once."""
    name = name.replace("{t}", topic)
    api.make_router(name, *pair)
    assert ok(api.router(name))["router"] == name
    assert ok(api.delete_router(name))["deleted"] is True


@pytest.mark.parametrize(
    "name", ["-a", ".a", ":a", ">a", "a/b", "ä", "a b", "a%b", "a" * 256, "_a"]
)
def test_bad_names(api: Api, pair: tuple[str, str], name: str) -> None:
    """400 on PUT; elsewhere an invalid name is just absent."""
    refused(api.put_router(name, source=pair[0], dest=pair[1]), 400, "invalid_request")
    refused(api.router(name), 404, "router_not_found", {"router": name})
    assert without(ok(api.delete_router(name))) == {"router": name, "deleted": False}


def test_the_longest_name(api: Api, pair: tuple[str, str]) -> None:
    """Case 25: 255 bytes."""
    name = "r" * 255
    api.make_router(name, *pair)
    assert ok(api.delete_router(name))["deleted"] is True


def test_topics_are_created(api: Api, topic: str) -> None:
    """Both with the default config; the source always, the destination unless declined."""
    source, dest = f"{topic}a", f"{topic}b"
    api.make_router(topic, source, dest)
    for name in (source, dest):
        state = ok(api.state(name))
        assert (state["type"], state["head_seq"]) == ("log", 0)
        assert state["config"]["durability"] == "disk"
    third = f"{topic}c"
    reply = api.put_router(f"{topic}2", source=source, dest=third, create_dest=False)
    refused(reply, 404, "topic_not_found", {"topic": third})
    refused(api.state(third), 404, "topic_not_found")
    refused(api.router(f"{topic}2"), 404, "router_not_found")


def test_only_the_source_is_created(api: Api, topic: str) -> None:
    """Case 107: create_dest is about the destination."""
    source, dest = f"{topic}a", f"{topic}b"
    api.make_log(dest)
    api.make_router(topic, source, dest, create_dest=False)
    assert ok(api.state(source))["head_seq"] == 0


def test_existing_topics_stay_as_they_are(api: Api, topic: str) -> None:
    """Whatever they are."""
    source, dest = f"{topic}a", f"{topic}b"
    api.make_queue(source, cap_records=7)
    api.make_queue(dest, lease_ms=4321)
    api.make_router(topic, source, dest)
    assert ok(api.state(source))["config"]["cap_records"] == 7
    assert ok(api.state(dest))["config"]["lease_ms"] == 4321


def test_creating_at_once(api: Api, topic: str, pair: tuple[str, str]) -> None:
    """Exactly one 201."""
    source, dest = pair
    with ThreadPoolExecutor(8) as pool:
        replies = list(
            pool.map(lambda _: api.put_router(topic, source=source, dest=dest), range(16))
        )
    assert sorted(reply.status_code for reply in replies) == [200] * 15 + [201]


# -- refusals -----------------------------------------------------------------------------------

BAD_FIELDS: list[Json] = [
    {"source": None},
    {"source": 1},
    {"dest": None},
    {"dest": ["b"]},
    {"source": ""},
    {"source": "-a"},
    {"source": "a>b"},
    {"dest": ">b"},
    {"dest": "ä"},
    {"dest": "x" * 256},
    {"preserve_node": None},
    {"preserve_node": 1},
    {"preserve_tag": "true"},
    {"create_dest": None},
    {"allow_cycle": None},
    {"allow_cycle": 0},
    {"guarantee": None},
    {"guarantee": "at_most_once"},
    {"guarantee": "Exactly_Once"},
    {"filter": 1},
    {"filter": {}},
    {"filter": []},
    {"filter": ["tag", "Eq"]},  # case 84
    {"filter": ["node", "Eq", "x"]},  # case 84
    {"filter": ["tag", "eq", "x"]},  # case 84
    {"filter": ["tag", "Glob", "x"]},
    {"filter": [1, 2, 3]},
    {"filter": ["tag", "Eq", "x", "y"]},
]


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=str)
def test_bad_fields(api: Api, topic: str, pair: tuple[str, str], fields: Json) -> None:
    """Case 84: 400, and no router, no topic."""
    sent = {"source": f"{topic}new", "dest": pair[1], **fields}
    refused(api.put_router(topic, **sent), 400, "invalid_request")
    refused(api.router(topic), 404, "router_not_found", {"router": topic})
    refused(api.state(f"{topic}new"), 404, "topic_not_found")


@pytest.mark.parametrize("missing", ["source", "dest"])
def test_missing_fields(api: Api, topic: str, pair: tuple[str, str], missing: str) -> None:
    """400, also when the router exists."""
    source, dest = pair
    sent = {"source": source, "dest": dest}
    del sent[missing]
    refused(api.put_router(topic, **sent), 400, "invalid_request")
    api.make_router(topic, source, dest)
    refused(api.put_router(topic, **sent), 400, "invalid_request")


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"", None, 415, "unsupported_media_type"),
        (b"", "application/json", 400, "invalid_request"),
        (b"{}", None, 415, "unsupported_media_type"),
        (b"{", "text/plain", 415, "unsupported_media_type"),  # case 7
        (b"{", "application/json", 400, "invalid_request"),
        (b"[]", "application/json", 400, "invalid_request"),
        (b'{"source":"a","dest":"b"}{}', "application/json", 400, "invalid_request"),  # case 16
    ],
    ids=str,
)
def test_content_types(
    api: Api, topic: str, body: bytes, content_type: str | None, status: int, code: str
) -> None:
    """415 before 400, before the name."""
    headers = {"content-type": content_type} if content_type else {}
    for name in (topic, "-bad"):
        refused(api.send("PUT", router_path(name), body, headers), status, code)


def test_a_loop_of_one(api: Api, topic: str) -> None:
    """source and dest equal: 400, also with allow_cycle, also when the name is absent."""
    for allowed in (False, True):
        reply = api.put_router(topic, source=topic, dest=topic, allow_cycle=allowed)
        refused(reply, 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")


def test_fan_in(api: Api, topic: str) -> None:
    """Case 106: a topic takes copies from one source only; the same pair twice is allowed."""
    a, b, c = (f"{topic}{letter}" for letter in "abc")
    api.make_router(f"{topic}1", a, b)
    reply = api.put_router(f"{topic}2", source=c, dest=b)
    refused(reply, 409, "topic_exists_incompatible", {"topic": b, "reason": "router_dest_fan_in"})
    refused(api.state(c), 404, "topic_not_found")
    api.make_router(f"{topic}2", a, b)
    refused(api.put_router(f"{topic}3", source=c, dest=b), 409, "topic_exists_incompatible")
    ok(api.delete_router(f"{topic}1"))
    refused(api.put_router(f"{topic}3", source=c, dest=b), 409, "topic_exists_incompatible")
    ok(api.delete_router(f"{topic}2"))
    api.make_router(f"{topic}3", c, b)


def test_fan_out(api: Api, topic: str) -> None:
    """One source may feed many."""
    for number in range(5):
        api.make_router(f"{topic}{number}", f"{topic}s", f"{topic}d{number}")


@pytest.mark.parametrize("changed", ["source", "dest", "both"])
def test_pointing_elsewhere(api: Api, topic: str, pair: tuple[str, str], changed: str) -> None:
    """Case 105: 409; delete and make anew instead; nothing is created."""
    source, dest = pair
    api.make_router(topic, source, dest)
    new = f"{topic}new"
    sent = {
        "source": {"source": dest, "dest": f"{topic}other"},
        "dest": {"source": source, "dest": new},
        "both": {"source": dest, "dest": new},
    }[changed]
    detail = {
        "router": topic,
        "reason": "router_repoint_forbidden",
        "existing_source": source,
        "existing_dest": dest,
    }
    refused(api.put_router(topic, **sent), 409, "topic_exists_incompatible", detail)
    refused(api.state(new), 404, "topic_not_found")
    refused(api.state(f"{topic}other"), 404, "topic_not_found")
    assert ok(api.router(topic))["dest"] == dest
    ok(api.delete_router(topic))
    api.make_router(topic, **sent)


def test_cycles(api: Api, topic: str) -> None:
    """409 with the topics on the way, from the new source to the new source."""
    a, b, c = (f"{topic}{letter}" for letter in "abc")
    api.make_router(f"{topic}1", a, b)
    reply = api.put_router(f"{topic}2", source=b, dest=a)
    refused(reply, 409, "router_cycle", {"cycle": [b, a, b]})
    api.make_router(f"{topic}3", b, c)
    reply = api.put_router(f"{topic}4", source=c, dest=a)
    refused(reply, 409, "router_cycle", {"cycle": [c, a, b, c]})
    ok(api.put_router(f"{topic}1", source=a, dest=b))  # its own edge is not a cycle
    ok(api.delete_router(f"{topic}3"))
    api.make_router(f"{topic}4", c, a)


def test_allowed_cycles(api: Api, topic: str) -> None:
    """The flag of the new router counts; taken back, the check is back."""
    a, b = f"{topic}a", f"{topic}b"
    api.make_router(f"{topic}1", a, b)
    api.make_router(f"{topic}2", b, a, allow_cycle=True)
    ok(api.put_router(f"{topic}2", source=b, dest=a, allow_cycle=True, preserve_tag=False))
    refused(api.put_router(f"{topic}2", source=b, dest=a), 409, "router_cycle")
    assert ok(api.router(f"{topic}2"))["preserve_tag"] is False


def test_the_order_of_checks(api: Api, topic: str) -> None:
    """400 for names, 400 for one topic twice, 404, fan-in, re-point, cycle."""
    a, b, c, absent = (f"{topic}{letter}" for letter in ("a", "b", "c", "no"))
    first, second = f"{topic}1", f"{topic}2"
    api.make_router(first, a, b)
    api.make_router(second, a, c)

    def put(router: str, source: str, dest: str, **fields: Any) -> tuple[int, str | None]:
        reply = api.put_router(router, source=source, dest=dest, **fields)
        error = reply.json()["error"]
        return reply.status_code, error.get("detail", {}).get("reason")

    assert put("-bad", a, absent, create_dest=False) == (400, None)
    assert put(first, absent, absent, create_dest=False) == (400, None)
    assert put(first, "-bad", absent, create_dest=False) == (400, None)
    assert put(first, a, "-bad", create_dest=False) == (400, None)
    assert put(first, a, absent, create_dest=False) == (404, None)
    assert put(first, b, c) == (409, "router_dest_fan_in")
    assert put(first, b, a) == (409, "router_repoint_forbidden")
    assert put(f"{topic}3", b, a) == (409, None)  # router_cycle
    assert put(f"{topic}3", c, b) == (409, "router_dest_fan_in")


def test_a_refused_router_creates_nothing(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 144: neither at the cap of routers nor at that of topics."""
    api = api_for(fresh_server(MAX_ROUTERS="2", MAX_TOPICS="6"))
    api.make_router("r1", "a", "b")
    api.make_router("r2", "b", "c")
    detail = {"limit": "max_routers", "max": 2}
    refused(api.put_router("r3", source="x", dest="y"), 429, "throttled", detail)
    refused(api.put_router("r3", source="c", dest="a"), 429, "throttled", detail)  # before cycle
    refused(api.put_router("r3", source="x", dest="b"), 409, "topic_exists_incompatible")
    refused(api.put_router("r1", source="x", dest="y"), 409, "topic_exists_incompatible")
    assert ok(api.put_router("r1", source="a", dest="b", preserve_tag=False))["created"] is False
    ok(api.delete_router("r2"))
    for number in range(2):
        api.make_log(f"t{number}")
    topics = {"limit": "max_topics", "max": 6}
    refused(api.put_router("r3", source="x", dest="y"), 429, "throttled", topics)
    names = [entry["topic"] for entry in ok(api.topics())["topics"]]
    assert names == ["a", "b", "c", "t0", "t1"]
    assert [entry["router"] for entry in ok(api.routers())["routers"]] == ["r1"]
    api.make_router("r3", "c", "y")
    refused(api.put_router("r4", source="y", dest="t0"), 429, "throttled", detail)


def test_routers_under_a_race(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Never more than the cap, however many try at once."""
    api = api_for(fresh_server(MAX_ROUTERS="5"))
    with ThreadPoolExecutor(8) as pool:
        replies = list(
            pool.map(lambda n: api.put_router(f"r{n}", source="s", dest=f"d{n}"), range(20))
        )
    assert sorted(reply.status_code for reply in replies) == [201] * 5 + [429] * 15
    assert len(ok(api.routers())["routers"]) == 5
    assert len(ok(api.topics())["topics"]) == 6


# -- DELETE -------------------------------------------------------------------------------------


def test_deleting(api: Api, topic: str, pair: tuple[str, str]) -> None:
    """Again and on what was never there: deleted false; the topics stay."""
    api.make_router(topic, *pair)
    assert without(ok(api.delete_router(topic))) == {"router": topic, "deleted": True}
    assert without(ok(api.delete_router(topic))) == {"router": topic, "deleted": False}
    refused(api.router(topic), 404, "router_not_found", {"router": topic})
    for name in pair:
        assert ok(api.delete_topic(name))["routers_removed"] == []


@pytest.mark.parametrize("end", [0, 1])
def test_deleting_a_topic(api: Api, topic: str, pair: tuple[str, str], end: int) -> None:
    """Case 39: routers at either end go with it, listed in name order; others stay."""
    other = f"{topic}x"
    names = [f"{topic}{number}" for number in (3, 1, 2)]
    for name in names:
        api.make_router(name, *pair)
    api.make_router(other, f"{topic}c", f"{topic}d")
    body = ok(api.delete_topic(pair[end]))
    assert (body["deleted"], body["routers_removed"]) == (True, sorted(names))
    for name in names:
        refused(api.router(name), 404, "router_not_found")
    ok(api.router(other))
    assert ok(api.delete_topic(pair[1 - end]))["routers_removed"] == []


def test_deleting_a_topic_that_is_both(api: Api, topic: str) -> None:
    """Case 39: what leads to it and what leads away."""
    a, b, c = (f"{topic}{letter}" for letter in "abc")
    api.make_router(f"{topic}2", a, b)
    api.make_router(f"{topic}1", b, c)
    assert ok(api.delete_topic(b))["routers_removed"] == [f"{topic}1", f"{topic}2"]


def test_a_topic_that_is_not_deleted_keeps_its_routers(api: Api, topic: str) -> None:
    """if_empty with a record in it."""
    api.make_router(topic, f"{topic}a", f"{topic}b")
    ok(api.write(f"{topic}a", numbered(1)))
    refused(api.delete_topic(f"{topic}a", if_empty="true"), 409, "topic_not_empty")
    ok(api.router(topic))


def test_a_deleted_router_leaves_its_destination_free(api: Api, topic: str) -> None:
    """For another source."""
    api.make_router(topic, f"{topic}a", f"{topic}b")
    ok(api.delete_topic(f"{topic}a"))
    api.make_router(topic, f"{topic}c", f"{topic}b")
    assert ok(api.router(topic))["source"] == f"{topic}c"
