"""A thin client for tests: one method per route, no interpretation of replies.

Owns: paths and JSON bodies. Must not know: what a good reply is (that is expect.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from tests.http import rawhttp
from tests.http.expect import Json, ok
from tests.http.sse import Stream

JSON = {"content-type": "application/json"}
TIMEOUT_S = 60.0


class Api:
    """Calls to one server, with at most one key."""

    def __init__(
        self, base_url: str, *, key: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._headers = {"authorization": f"Bearer {key}"} if key is not None else {}
        self._client = httpx.Client(
            base_url=base_url,
            headers=self._headers,
            timeout=timeout_s,
            trust_env=False,
            verify=False,
        )

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    @property
    def base_url(self) -> str:
        """The server's origin."""
        return str(self._client.base_url).rstrip("/")

    @property
    def address(self) -> rawhttp.Address:
        """Where raw connections go."""
        url = self._client.base_url
        assert url.port is not None
        return url.host, url.port

    # -- any request ------------------------------------------------------------------------

    def send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """One request as given; nothing is added to it but the key."""
        return self._client.request(method, path, content=content, headers=dict(headers or {}))

    def json(
        self,
        method: str,
        path: str,
        body: object,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """One request with a JSON body."""
        content = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        return self.send(method, path, content, {**JSON, **(headers or {})})

    def raw(self, content: bytes, *, method: str = "GET") -> rawhttp.RawReply:
        """Bytes on a fresh connection, and the one reply to them."""
        return rawhttp.exchange(self.address, content, method=method)

    # -- routes -----------------------------------------------------------------------------

    def put(self, topic: str, **config: Any) -> httpx.Response:
        """Create or configure a topic."""
        return self.json("PUT", f"/v0/topics/{topic}", config)

    def state(self, topic: str, **query: Any) -> httpx.Response:
        """State of a topic."""
        return self.send("GET", f"/v0/topics/{topic}{query_text(query)}")

    def topics(self, **query: Any) -> httpx.Response:
        """List of topics."""
        return self.send("GET", f"/v0/topics{query_text(query)}")

    def delete_topic(self, topic: str, **query: Any) -> httpx.Response:
        """Delete a topic."""
        return self.send("DELETE", f"/v0/topics/{topic}{query_text(query)}")

    def write(
        self,
        topic: str,
        records: object,
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> httpx.Response:
        """Append records."""
        body = {"records": records, **fields}
        return self.json("POST", f"/v0/topics/{topic}{query}", body, headers)

    def diff(self, topic: str, **fields: Any) -> httpx.Response:
        """Read records."""
        return self.json("POST", f"/v0/topics/{topic}/diff", fields)

    def delete(self, topic: str, **fields: Any) -> httpx.Response:
        """Delete records."""
        return self.json("POST", f"/v0/topics/{topic}/delete", fields)

    def claim(self, topic: str, node: object = "w", **fields: Any) -> httpx.Response:
        """Lease jobs."""
        return self.json("POST", f"/v0/topics/{topic}/claim", {"node": node, **fields})

    def ack(self, topic: str, seqs: object, node: object = "w", **fields: Any) -> httpx.Response:
        """Complete jobs."""
        return self._settle("ack", topic, seqs, node, fields)

    def nack(self, topic: str, seqs: object, node: object = "w", **fields: Any) -> httpx.Response:
        """Give jobs back."""
        return self._settle("nack", topic, seqs, node, fields)

    def extend(self, topic: str, seqs: object, node: object = "w", **fields: Any) -> httpx.Response:
        """Move deadlines."""
        return self._settle("extend", topic, seqs, node, {"lease_ms": 30_000, **fields})

    def reject(self, topic: str, seqs: object, node: object = "w", **fields: Any) -> httpx.Response:
        """Fail jobs for good."""
        return self._settle("reject", topic, seqs, node, fields)

    def patch(self, topic: str, **config: Any) -> httpx.Response:
        """Change the named fields of a topic's config."""
        return self.json("PATCH", f"/v0/topics/{topic}", config)

    def post(self, topic: str, verb: str, **fields: Any) -> httpx.Response:
        """Any other call with a body below a topic: purge, release, redrive."""
        return self.json("POST", f"/v0/topics/{topic}/{verb}", fields)

    def pause(self, topic: str) -> httpx.Response:
        """Hand out nothing from now on."""
        return self.send("POST", f"/v0/topics/{topic}/pause")

    def resume(self, topic: str) -> httpx.Response:
        """Hand out jobs again."""
        return self.send("POST", f"/v0/topics/{topic}/resume")

    def jobs(self, topic: str, **query: Any) -> httpx.Response:
        """A page of jobs."""
        return self.send("GET", f"/v0/topics/{topic}/jobs{query_text(query)}")

    def job(self, topic: str, seq: object, **query: Any) -> httpx.Response:
        """One job."""
        return self.send("GET", f"/v0/topics/{topic}/jobs/{seq}{query_text(query)}")

    def cancel(self, topic: str, seq: object, **query: Any) -> httpx.Response:
        """Cancel one job."""
        return self.send("DELETE", f"/v0/topics/{topic}/jobs/{seq}{query_text(query)}")

    def cancel_key(self, topic: str, key: str) -> httpx.Response:
        """Cancel the waiting job with a key."""
        return self.send("DELETE", f"/v0/topics/{topic}/keys/{quote(key, safe='')}")

    def workers(self, topic: str) -> httpx.Response:
        """Who works on a queue."""
        return self.send("GET", f"/v0/topics/{topic}/workers")

    def work(self, topic: str, *, key: str | None = None, **query: Any) -> Stream:
        """Open a work stream (the caller closes it)."""
        headers = {"authorization": f"Bearer {key}"} if key is not None else self._headers
        return Stream(self.address, f"/v0/topics/{topic}/work{query_text(query)}", headers)

    def create_watch(self, topics: object, *, query: str = "", **fields: Any) -> httpx.Response:
        """Create a watch session."""
        return self.json("POST", f"/v0/watch{query}", {"topics": topics, **fields})

    def open_watch(self, wid: str, *, last_event_id: str | None = None, query: str = "") -> Stream:
        """Open the stream of a watch session (the caller closes it)."""
        headers = dict(self._headers)
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        return Stream(self.address, f"/v0/watch/{wid}{query}", headers)

    def put_router(self, router: str, **fields: Any) -> httpx.Response:
        """Create or configure a router."""
        return self.json("PUT", router_path(router), fields)

    def router(self, router: str) -> httpx.Response:
        """One router, caught up."""
        return self.send("GET", router_path(router))

    def routers(self, **query: Any) -> httpx.Response:
        """List of routers."""
        return self.send("GET", f"/v0/routers{query_text(query)}")

    def delete_router(self, router: str) -> httpx.Response:
        """Delete a router."""
        return self.send("DELETE", router_path(router))

    # -- the same, for when only success matters ----------------------------------------------

    def make_queue(self, topic: str, **config: Any) -> None:
        """A queue, in the class that costs no disk sync unless told otherwise."""
        ok(self.put(topic, **{"type": "queue", "durability": "memory", **config}), 201)

    def make_log(self, topic: str, **config: Any) -> None:
        """A log, in the class that costs no disk sync unless told otherwise."""
        ok(self.put(topic, **{"durability": "memory", **config}), 201)

    def make_router(self, router: str, source: str, dest: str, **fields: Any) -> None:
        """A router that did not exist before."""
        ok(self.put_router(router, source=source, dest=dest, **fields), 201)

    def watch(self, *names: str, **fields: Any) -> Stream:
        """An open watch stream on topics, each from its start (the caller closes it)."""
        session = ok(self.create_watch({name: {} for name in names}, **fields))
        return self.open_watch(session["wid"])

    def append(self, topic: str, *data: object) -> list[int]:
        """Append one record per value to an existing topic; returns their seqs."""
        seqs = ok(self.write(topic, [{"data": value} for value in data]))["seqs"]
        assert isinstance(seqs, list)
        return seqs

    def append_many(self, topic: str, records: Sequence[Json]) -> list[int]:
        """Append whole records to an existing topic; returns their seqs."""
        seqs = ok(self.write(topic, records))["seqs"]
        assert isinstance(seqs, list)
        return seqs

    def claimed(self, topic: str, node: str = "w", **fields: Any) -> list[Json]:
        """Lease jobs; returns them."""
        jobs = ok(self.claim(topic, node, **fields))["claimed"]
        assert isinstance(jobs, list)
        return jobs

    def read(self, topic: str, **fields: Any) -> list[Json]:
        """Read records; returns them."""
        records = ok(self.diff(topic, **fields))["records"]
        assert isinstance(records, list)
        return records

    def facts(self, topic: str, *names: str) -> tuple[Any, ...]:
        """Some fields of a topic's state, queue counters included."""
        state = ok(self.state(topic, touch="false"))
        state.update(state.get("queue", {}))
        return tuple(state[name] for name in names)

    def _settle(
        self, verb: str, topic: str, seqs: object, node: object, fields: Mapping[str, Any]
    ) -> httpx.Response:
        body = {"node": node, "seqs": seqs, **fields}
        return self.json("POST", f"/v0/topics/{topic}/{verb}", body)


def router_path(router: str) -> str:
    """The path of a router, its name encoded."""
    return f"/v0/routers/{quote(router, safe='')}"


def query_text(query: Mapping[str, Any]) -> str:
    """A query with its question mark, or nothing."""
    return "?" + urlencode(query) if query else ""


def numbered(count: int, start: int = 0) -> list[Json]:
    """Records whose data are consecutive numbers."""
    return [{"data": number} for number in range(start, start + count)]


def seqs_of(records: Sequence[Json]) -> list[int]:
    """The seqs of records or jobs, in the order given."""
    return [record["$seq"] for record in records]
