"""Claims that wait, started in the background, one after the other in a known order.

Owns: the threads, and knowing that a claim is waiting before the next thing happens. Must not know:
what any test is about.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import httpx

from tests.http.api import Api
from tests.http.expect import Json, eventually, ok

PATIENCE_MS = 30_000
REPLY_TIMEOUT_S = 60.0


class Waiters:
    """Waiting claims on one server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pool = ThreadPoolExecutor(16)

    def __enter__(self) -> Waiters:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True)

    def start(self, queue: str, node: str = "w", **fields: Any) -> Future[httpx.Response]:
        """Start a claim, and return once the server has it waiting."""
        before = waiting(self._api, queue)
        fields = {"wait_ms": PATIENCE_MS, **fields}
        call = self._pool.submit(self._api.claim, queue, node, **fields)
        eventually(lambda: call.done() or waiting(self._api, queue) == before + 1)
        assert not call.done(), call.result().text
        return call


def waiting(api: Api, queue: str) -> int:
    """How many claims wait for jobs of a queue."""
    return sum(worker["waiting"] for worker in ok(api.workers(queue))["workers"])


def reply(call: Future[httpx.Response]) -> Json:
    """The good answer of a claim that has waited."""
    return ok(call.result(REPLY_TIMEOUT_S))


def datas(call: Future[httpx.Response]) -> list[Any]:
    """The data of the jobs that a claim got."""
    return [job["data"] for job in reply(call)["claimed"]]
