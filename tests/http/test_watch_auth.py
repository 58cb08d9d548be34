"""Who may make and open watch sessions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.http.api import Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, ok, refused
from tests.http.process import ServerProcess
from tests.http.sse import Stream
from tests.http.watching import drain, refusal, seqs_in

KEYS = {
    "full": {"read", "write", "delete", "admin"},
    "full2": {"read", "write", "delete", "admin"},
    "reader:read": {"read"},
    "writer:write": {"write"},
    "deleter:delete": {"delete"},
    "admin:admin": {"admin"},
    "tenant:read:tenant-|shared:": {"read"},
}


@dataclass
class Guarded:
    """A server with keys, and one client per key that a test asked for."""

    server: ServerProcess
    clients: dict[str | None, Api] = field(default_factory=dict)

    def by(self, key: str | None) -> Api:
        """A client that presents this key."""
        if key not in self.clients:
            self.clients[key] = Api(self.server.base_url, key=key)
        return self.clients[key]

    @property
    def full(self) -> Api:
        """A client that may do anything."""
        return self.by("full")

    def session(self, key: str, *names: str) -> str:
        """A session made by this key."""
        wid = ok(self.by(key).create_watch({name: {} for name in names}))["wid"]
        assert isinstance(wid, str)
        return wid

    def status(self, wid: str, key: str | None, query: str = "") -> int:
        """What the opening of a session answers."""
        with self.by(key).open_watch(wid, query=query) as stream:
            return stream.status


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One server with all keys of this file, and some topics."""
    directory = tmp_path_factory.mktemp("guarded") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": ",".join(KEYS)}).start()
    found = Guarded(process)
    for name in ("tenant-a", "tenant-b", "shared:x", "other", "other2"):
        found.full.make_log(name)
        found.full.append(name, name)
    yield found
    for client in found.clients.values():
        client.close()
    process.stop()


@pytest.mark.parametrize("entry", list(KEYS))
def test_making_needs_read(guarded: Guarded, entry: str) -> None:
    """Nothing else does, nothing else is needed."""
    reply = guarded.by(entry.partition(":")[0]).create_watch({"tenant-a": {}})
    if "read" in KEYS[entry]:
        ok(reply)
    else:
        refused(reply, 403, "forbidden", None)


@pytest.mark.parametrize("key", [None, "unknown"])
@pytest.mark.parametrize("query", ["", "?token=full"])
def test_making_needs_a_key_in_the_header(guarded: Guarded, key: str | None, query: str) -> None:
    """Case 23: a token in the query counts for the stream only; 401 comes before the body."""
    refused(guarded.by(key).create_watch({}, query=query), 401, "unauthorized", None)


@pytest.mark.parametrize(
    ("names", "offender"),
    [
        (["tenant-a"], None),
        (["tenant-a", "tenant-b", "shared:x"], None),
        (["other"], "other"),
        (["tenant-a", "other"], "other"),
        (["shared"], "shared"),
        (["tenant-absent", "other"], "other"),  # case 88
        (["absent", "tenant-a"], "absent"),  # case 88
        ([""], ""),
    ],
)
def test_prefixes(guarded: Guarded, names: list[str], offender: str | None) -> None:
    """Case 88: every topic must be allowed, before any is looked for; the offender is named."""
    reply = guarded.by("tenant").create_watch({name: {} for name in names})
    if offender is None:
        assert set(ok(reply)["topics"]) == set(names)
    else:
        refused(reply, 403, "forbidden", {"topic": offender})


def test_prefixes_in_the_order_of_checks(guarded: Guarded) -> None:
    """Case 88: 400 for shape and number first, then 403, also when lenient, then 404."""
    tenant = guarded.by("tenant")
    refused(tenant.create_watch({"other": {"tail": 1}}), 400, "invalid_request")
    crowd: Json = {f"other{number}": {} for number in range(257)}
    refused(tenant.create_watch(crowd), 400, "invalid_request")
    found = refused(tenant.create_watch({"other": {}, "other2": {}}), 403, "forbidden")
    assert found["topic"] in ("other", "other2")
    lenient = tenant.create_watch({"other-absent": {}}, query="?lenient=true")
    refused(lenient, 403, "forbidden", {"topic": "other-absent"})
    refused(tenant.create_watch({"tenant-absent": {}}), 404, "topic_not_found")


@pytest.mark.parametrize(
    ("maker", "opener", "status"),
    [
        ("full", "full", 200),
        ("reader", "reader", 200),
        ("tenant", "tenant", 200),
        ("full", "full2", 401),  # case 91
        ("reader", "full", 401),  # case 91
        ("full", "writer", 401),
        ("full", "unknown", 401),
        ("full", None, 401),
    ],
)
def test_only_the_maker_opens(
    guarded: Guarded, maker: str, opener: str | None, status: int
) -> None:
    """Case 91: the session belongs to its key; knowing its name is not enough."""
    wid = guarded.session(maker, "tenant-a")
    if status == 401:
        refused(refusal(guarded.full, wid, opener), 401, "unauthorized", None)
    assert guarded.status(wid, opener) == status


@pytest.mark.parametrize(
    ("query", "header", "status"),
    [
        ("?token=reader", None, 200),
        ("?token=reader", "Bearer reader", 200),
        ("?token=unknown", "Bearer reader", 200),
        ("?token=reader", "Bearer unknown", 401),  # case 22
        ("?token=reader", "Bearer full", 401),  # case 22
        ("?token=reader&token=unknown", None, 200),
        ("?token=unknown&token=reader", None, 401),
        ("?a=b&token=%72eader", None, 200),
        ("?token=full", None, 401),
        ("?token=", None, 401),
        ("?Token=reader", None, 401),
        ("", "bearer reader", 401),
        ("", None, 401),
    ],
)
def test_a_token_in_the_query(
    guarded: Guarded, query: str, header: str | None, status: int
) -> None:
    """Case 22: for clients that cannot set headers; the first counts, the header wins."""
    wid = guarded.session("reader", "other")
    headers = {} if header is None else {"authorization": header}
    with Stream(guarded.server.address, f"/v0/watch/{wid}{query}", headers) as stream:
        assert stream.status == status


@pytest.mark.parametrize("key", [None, "unknown", "reader", "writer", "full"])
def test_unknown_sessions_come_before_keys(guarded: Guarded, key: str | None) -> None:
    """Case 91: 406, then 404, then 401."""
    refused(refusal(guarded.full, "wid_no", key), 404, "not_found", None)
    for name in ("wid_no", guarded.session("full", "other")):
        reply = refusal(guarded.full, name, key, accept="text/html")
        refused(reply, 406, "not_acceptable", None)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v0/watch/wid_no"), ("GET", "/v0/watch"), ("DELETE", "/v0/watch/wid_no"),
     ("GET", "/v0/watch/"), ("GET", "/v0/watch/a/b"), ("OPTIONS", "/v0/watch")],
)  # fmt: skip
def test_everything_else_under_watch_needs_a_key(guarded: Guarded, method: str, path: str) -> None:
    """Cases 1, 2: 401 before 404 and 405; only the stream route itself decides later."""
    refused(guarded.by(None).send(method, path), 401, "unauthorized", None)
    reply = guarded.by("full").send(method, path)
    assert reply.status_code in (404, 405), reply.text


def test_a_session_shows_what_its_maker_may_see(guarded: Guarded) -> None:
    """The stream of a key with prefixes works as any other."""
    wid = guarded.session("tenant", "tenant-a", "shared:x")
    with guarded.by("tenant").open_watch(wid) as stream:
        frames = drain(stream, 2)
        assert (seqs_in(frames, "tenant-a"), seqs_in(frames, "shared:x")) == ([1], [1])


def test_a_refused_opening_changes_nothing(guarded: Guarded) -> None:
    """The session goes on for its maker, a rewind by somebody else has no effect."""
    wid = guarded.session("reader", "tenant-b")
    with guarded.by("reader").open_watch(wid) as stream:
        first = drain(stream)[0]
    with guarded.by("full").open_watch(wid, last_event_id=first.id) as stream:
        assert stream.status == 401
    with guarded.by("reader").open_watch(wid) as stream:
        assert seqs_in(drain(stream)) == []


@pytest.mark.parametrize("header", ["bearer x", "Bearer unknown", "Basic x", ""])
def test_dev_mode_looks_at_no_key(api: Api, log: str, header: str) -> None:
    """Case 21: without keys anybody opens any session."""
    wid = ok(api.create_watch({log: {}}))["wid"]
    sent = {"authorization": header}
    with Stream(api.address, f"/v0/watch/{wid}?token=unknown", sent) as stream:
        assert stream.status == 200


def test_no_slot_is_looked_for_before_the_key(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """401 before 429."""
    server = fresh_server(API_KEYS="k1,k2", MAX_SSE_CONNECTIONS="1")
    api = api_for(server, "k1")
    api.make_log("l")
    wid = ok(api.create_watch({"l": {}}))["wid"]
    with api.open_watch(wid) as held:
        drain(held)
        refused(refusal(api, wid, "k2"), 401, "unauthorized", None)
        refused(refusal(api, wid, "k1"), 429, "throttled", None)
        refused(refusal(api, wid, "k1", accept="a/b"), 406, "not_acceptable", None)
