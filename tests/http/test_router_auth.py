"""Routers and keys: scopes, and prefixes of the router's name and of both its topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.api import JSON, Api
from tests.http.expect import Json, ok, refused
from tests.http.process import ServerProcess
from tests.http.test_router_lists import entries

KEYS = {
    "full": {"read", "write", "delete", "admin"},
    "reader:read": {"read"},
    "writer:write": {"write"},
    "deleter:delete": {"delete"},
    "admin:admin": {"admin"},
    "tenant::tenant-": {"read", "write", "delete", "admin"},
    "arrow::jobs->|tenant-": {"read", "write", "delete", "admin"},
}


class Guarded:
    """A server with keys and routers, and one client per key."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.clients = {
            key: Api(server.base_url, key=key)
            for key in (entry.partition(":")[0] for entry in KEYS)
        }

    def by(self, key: str) -> Api:
        """A client that presents this key."""
        return self.clients[key]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One server with all keys of this file."""
    directory = tmp_path_factory.mktemp("guarded") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": ",".join(KEYS)}).start()
    found = Guarded(process)
    for name, source, dest in (
        ("tenant-in", "tenant-a", "tenant-b"),
        ("tenant-out", "tenant-a", "other-b"),
        ("tenant-from", "other-a", "tenant-c"),
        ("tenant-z", "tenant-a", "tenant-z"),
        ("other", "tenant-a", "tenant-d"),
        ("jobs->audit", "tenant-a", "tenant-e"),
    ):
        found.by("full").make_router(name, source, dest)
    yield found
    for client in found.clients.values():
        client.close()
    process.stop()


@pytest.mark.parametrize("entry", [entry for entry in KEYS if "::" not in entry])
@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/v0/routers", "read"),
        ("GET", "/v0/routers/tenant-in", "read"),
        ("PUT", "/v0/routers/tenant-in", "admin"),
        ("DELETE", "/v0/routers/no-such", "delete"),
        ("POST", "/v0/routers/tenant-in", "admin"),
        ("OPTIONS", "/v0/routers/tenant-in", "admin"),
    ],
)
def test_scopes(guarded: Guarded, entry: str, method: str, path: str, needed: str) -> None:
    """Case 2: each needs exactly its scope; unknown methods on a router need admin."""
    body = b'{"source":"tenant-a","dest":"tenant-b"}' if method == "PUT" else None
    reply = guarded.by(entry.partition(":")[0]).send(method, path, body, JSON if body else {})
    if needed not in KEYS[entry]:
        refused(reply, 403, "forbidden", None)
    elif method in ("POST", "OPTIONS"):
        refused(reply, 405, "method_not_allowed")
    else:
        ok(reply)


@pytest.mark.parametrize(("key", "status"), [("reader", 403), ("admin", 200), ("full", 200)])
def test_head_needs_admin(guarded: Guarded, key: str, status: int) -> None:
    """Case 5: HEAD on a router falls under the fallback scope of routers."""
    reply = guarded.by(key).send("HEAD", "/v0/routers/tenant-in")
    assert (reply.status_code, reply.content) == (status, b"")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize("path", ["/v0/routers", "/v0/routers/tenant-in", "/v0/routers/x/y"])
def test_without_a_key(guarded: Guarded, method: str, path: str) -> None:
    """Cases 1, 2, 23: 401 first; a token in the query does not count."""
    with Api(guarded.server.base_url) as anonymous:
        refused(anonymous.send(method, f"{path}?token=full"), 401, "unauthorized", None)


@pytest.mark.parametrize(
    ("name", "source", "dest", "detail"),
    [
        ("other-r", "tenant-a", "tenant-n", None),
        ("tenant-n", "other-n", "tenant-n", {"topic": "other-n"}),
        ("tenant-n", "tenant-a", "other-n", {"topic": "other-n"}),
        ("tenant-n", "tenant-a", "tenant", {"topic": "tenant"}),
        ("-bad", "tenant-a", "tenant-n", None),
        ("tenant->", "-bad", "tenant-n", {"topic": "-bad"}),
        ("tenant-n", "other-n", "other-n", {"topic": "other-n"}),
    ],
)
def test_prefixes_of_put(
    guarded: Guarded, name: str, source: str, dest: str, detail: Json | None
) -> None:
    """Name, source and dest must all be allowed, before anything else is looked at."""
    reply = guarded.by("tenant").put_router(name, source=source, dest=dest)
    refused(reply, 403, "forbidden", detail)
    refused(guarded.by("full").state("tenant-n"), 404, "topic_not_found")
    refused(guarded.by("full").state("other-n"), 404, "topic_not_found")


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("tenant-in", 200),
        ("tenant-out", 403),
        ("tenant-from", 403),
        ("other", 403),
        ("other-absent", 403),
        ("tenant-absent", 404),
        ("tenant->absent", 404),
    ],
)
def test_prefixes_of_get_and_delete(guarded: Guarded, name: str, status: int) -> None:
    """Case 24: the router's name always; source and dest too if it exists."""
    reply = guarded.by("tenant").router(name)
    if status == 200:
        assert ok(reply)["router"] == name
    elif status == 404:
        refused(reply, 404, "router_not_found", {"router": name})
        assert ok(guarded.by("tenant").delete_router(name))["deleted"] is False
    else:
        refused(reply, 403, "forbidden")
        refused(guarded.by("tenant").delete_router(name), 403, "forbidden")
        if "absent" not in name:
            ok(guarded.by("full").router(name))


def test_prefixes_are_those_of_the_decoded_name(guarded: Guarded) -> None:
    """A name with > arrives percent-encoded."""
    assert ok(guarded.by("arrow").send("GET", "/v0/routers/jobs-%3Eaudit"))["router"] == (
        "jobs->audit"
    )
    refused(guarded.by("tenant").send("GET", "/v0/routers/jobs-%3Eaudit"), 403, "forbidden")
    refused(guarded.by("arrow").send("GET", "/v0/routers/jobs-x"), 403, "forbidden", None)


def test_lists_show_what_is_allowed(guarded: Guarded) -> None:
    """By name, source and dest; pages are filled after that."""
    tenant = guarded.by("tenant")
    assert entries(tenant) == ["tenant-in", "tenant-z"]
    assert entries(guarded.by("arrow")) == ["jobs->audit", "tenant-in", "tenant-z"]
    assert entries(tenant, source="other-a") == []
    assert len(entries(guarded.by("reader"))) == 6
    first = ok(tenant.routers(page_size=1))
    assert [entry["router"] for entry in first["routers"]] == ["tenant-in"]
    second = ok(tenant.routers(page_size=1, cursor=first["next_cursor"]))
    assert [entry["router"] for entry in second["routers"]] == ["tenant-z"]
    rest = second
    while "next_cursor" in rest:
        rest = ok(tenant.routers(page_size=1, cursor=rest["next_cursor"]))
        assert rest["routers"] == []


def test_deleting_topics_with_foreign_routers(guarded: Guarded) -> None:
    """The key that may delete a topic removes what hangs on it, and is told of its own."""
    full = guarded.by("full")
    full.make_router("other-r", "tenant-a", "tenant-gone")
    body = ok(guarded.by("tenant").delete_topic("tenant-gone"))
    assert body["routers_removed"] == []
    refused(full.router("other-r"), 404, "router_not_found")
    refused(full.router("other-r"), 404, "router_not_found")
