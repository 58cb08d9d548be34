"""GET /v0/routers: entries, filters, pages; and what is not a route."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.api import JSON, Api
from tests.http.expect import Json, ok, refused
from tests.http.test_routers import OTHERS


def entries(api: Api, **query: Any) -> list[str]:
    """Names of one page."""
    return [entry["router"] for entry in ok(api.routers(**query))["routers"]]


def test_entries(api: Api, topic: str) -> None:
    """The fields of an entry."""
    source, dest = f"{topic}a", f"{topic}b"
    api.make_router(topic, source, dest, **OTHERS)
    body = ok(api.routers(prefix=topic))
    assert set(body) == {"routers", "performance"}
    assert body["routers"] == [
        {
            "router": topic,
            "source": source,
            "dest": dest,
            "guarantee": "exactly_once",
            "forwarded_total": 0,
        }
    ]


def test_filters_of_the_list(api: Api, topic: str) -> None:
    """prefix is one; source and dest are exact; all together narrow further."""
    ends = {"1": ("a", "b"), "2": ("a", "c"), "3": ("b", "d"), ">4": ("a", "e")}
    for name, (source, dest) in ends.items():
        api.make_router(f"{topic}{name}", f"{topic}{source}", f"{topic}{dest}")
    short = {
        "all": entries(api, prefix=topic),
        "from a": entries(api, prefix=topic, source=f"{topic}a"),
        "to c": entries(api, dest=f"{topic}c"),
        "a to c": entries(api, source=f"{topic}a", dest=f"{topic}c"),
        "b to c": entries(api, source=f"{topic}b", dest=f"{topic}c"),
        "part": entries(api, source=topic),
        "prefix": entries(api, prefix=f"{topic}>"),
        "none": entries(api, prefix=f"{topic}no"),
    }
    assert {key: [name.removeprefix(topic) for name in names] for key, names in short.items()} == {
        "all": ["1", "2", "3", ">4"],
        "from a": ["1", "2", ">4"],
        "to c": ["2"],
        "a to c": ["2"],
        "b to c": [],
        "part": [],
        "prefix": [">4"],
        "none": [],
    }


def test_pages(api: Api, topic: str) -> None:
    """Case 18: names ascending, a cursor while more remains; filters hold on every page."""
    names = [f"{topic}{number:02}" for number in range(25)]
    for name in reversed(names):
        api.make_router(name, f"{topic}s", f"{topic}d")
    api.make_router(f"{topic}99", f"{topic}other", f"{topic}e")
    for size in (1, 7, 25, 26):
        found: list[str] = []
        query: Json = {"prefix": topic, "source": f"{topic}s", "page_size": size}
        while True:
            body = ok(api.routers(**query))
            page = [entry["router"] for entry in body["routers"]]
            assert len(page) <= size
            found += page
            if "next_cursor" not in body:
                break
            assert len(page) == size
            query["cursor"] = body["next_cursor"]
        assert found == names
    assert len(entries(api, prefix=topic, page_size=0)) == 1
    for unknown in ("abc", "-5", "99999"):
        assert len(entries(api, prefix=topic, page_size=unknown)) == 26
    assert entries(api, prefix=topic, cursor="") == [*names, f"{topic}99"]


def test_cursors(api: Api, topic: str) -> None:
    """Case 19: a position, not a snapshot; nonsense is 400."""
    for number in range(4):
        api.make_router(f"{topic}{number}", f"{topic}s", f"{topic}d{number}")
    cursor = ok(api.routers(prefix=topic, page_size=2))["next_cursor"]
    ok(api.delete_router(f"{topic}1"))
    ok(api.delete_router(f"{topic}2"))
    assert entries(api, prefix=topic, cursor=cursor) == [f"{topic}3"]
    refused(api.routers(cursor="%%%"), 400, "invalid_request")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_on_the_list(api: Api, method: str) -> None:
    """Case 4: 405."""
    refused(api.send(method, "/v0/routers"), 405, "method_not_allowed")


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS"])
def test_other_methods_on_a_router(api: Api, method: str) -> None:
    """Case 4: 405, known or not."""
    refused(api.send(method, "/v0/routers/x", b"{}", JSON), 405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/v0/routers/", "/v0/routers/x/", "/v0/routers/x/y"])
def test_other_paths(api: Api, path: str) -> None:
    """Case 3: 404 of the route."""
    refused(api.send("GET", path), 404, "not_found")
