"""What takes long to see: started with the session, looked at by tests at its end.

Owns: a background long poll and an idle work stream. Must not know: pytest.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpx

from tests.http.api import Api
from tests.http.expect import ok
from tests.http.process import ServerProcess

QUEUE = "observed-queue"
LOG = "observed-log"
PATIENCE_S = 40.0


class Observations:
    """Runs beside the other tests, so that its 30 seconds add nothing."""

    def __init__(self, server: ServerProcess) -> None:
        self._base_url = server.base_url
        with Api(self._base_url) as api:
            api.make_queue(QUEUE)
            api.make_log(LOG)
        self._pool = ThreadPoolExecutor(2)
        self._heartbeats: Future[list[float]] = self._pool.submit(self._see_heartbeats)
        self._poll: Future[tuple[float, httpx.Response]] = self._pool.submit(self._see_poll)

    def stop(self) -> None:
        """Wait for nothing more; the threads end with the server."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def heartbeat_waits_s(self) -> list[float]:
        """Seconds before the first heartbeat of an idle stream, and between it and the second."""
        return self._heartbeats.result(PATIENCE_S)

    def long_poll(self) -> tuple[float, httpx.Response]:
        """Seconds and answer of a diff with wait_ms 60 000 on an empty log."""
        return self._poll.result(PATIENCE_S)

    def _see_heartbeats(self) -> list[float]:
        waits: list[float] = []
        with Api(self._base_url) as api, api.work(QUEUE, node="idle") as stream:
            before = time.monotonic()
            while len(waits) < 2:
                if stream.next_frame(20.0).comment == "hb":
                    waits.append(time.monotonic() - before)
                    before = time.monotonic()
        return waits

    def _see_poll(self) -> tuple[float, httpx.Response]:
        with Api(self._base_url, timeout_s=PATIENCE_S) as api:
            before = time.monotonic()
            reply = api.diff(LOG, wait_ms=60_000)
            ok(reply)
            return time.monotonic() - before, reply
