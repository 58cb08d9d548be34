"""What a worker and its app need of the world: connections, a clock, a thread for the keeper.

Owns: the seam, and its ordinary side: the network, the machine's clock, a real thread. Must not
know: apps, jobs. Tests put a server in memory and a clock of their own in its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from logqueue.client import AsyncClient, Backoff, Client
from logqueue.client.connecting import TIMEOUT_S, Urls
from logqueue.worker.leases import LeaseKeeper

ONE_TRY = Backoff(attempts=1)
"""A worker repeats its calls itself: it knows which are still worth it."""

KEEPER_END_S = 2.0


class Environment(Protocol):
    """The world as workers and producers see it."""

    def producer(self) -> Client:
        """A client for `send`."""
        ...

    def async_producer(self) -> AsyncClient:
        """A client for `send_async`, on the running loop."""
        ...

    def worker(self, node: str) -> AsyncClient:
        """A client for a worker's calls."""
        ...

    def keeper(self, node: str, timeout_s: float) -> Client:
        """A client for renewals; a call that takes longer than `timeout_s` comes too late."""
        ...

    def now(self) -> float:
        """Seconds of a clock that never jumps."""
        ...

    def start(self, keeper: LeaseKeeper) -> Callable[[], None]:
        """Have a keeper driven from now on, apart from the event loop; returns what ends that."""
        ...


class Network:
    """A server somewhere, the machine's clock, a thread per keeper.

    Args:
        url: Where the server is, or all servers of one log, see `Client`; LOGQUEUE_URL, else
            http://127.0.0.1:4000.
        token: The key to call with; LOGQUEUE_TOKEN, else none.
        timeout_s: How long a reply may take, in seconds; the client's default when not given.
        backoff: How calls of producers are retried; the client's default when not given.
    """

    def __init__(
        self,
        url: Urls | None = None,
        token: str | None = None,
        *,
        timeout_s: float | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.url = url
        self.token = token
        self._timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self._backoff = backoff

    def producer(self) -> Client:
        """See Surroundings."""
        return Client(self.url, self.token, timeout_s=self._timeout_s, backoff=self._backoff)

    def async_producer(self) -> AsyncClient:
        """See Surroundings."""
        return AsyncClient(self.url, self.token, timeout_s=self._timeout_s, backoff=self._backoff)

    def worker(self, node: str) -> AsyncClient:
        """See Surroundings."""
        return AsyncClient(
            self.url,
            self.token,
            node=node,
            timeout_s=self._timeout_s,
            backoff=ONE_TRY,
            reconnect=ONE_TRY,
        )

    def keeper(self, node: str, timeout_s: float) -> Client:
        """See Surroundings."""
        return Client(self.url, self.token, node=node, timeout_s=timeout_s, backoff=ONE_TRY)

    def now(self) -> float:
        """See Surroundings."""
        return time.monotonic()

    def start(self, keeper: LeaseKeeper) -> Callable[[], None]:
        """See Surroundings."""
        thread = threading.Thread(target=keeper.run, name="logqueue-keeper", daemon=True)
        thread.start()

        def stop() -> None:
            keeper.close()
            thread.join(KEEPER_END_S)

        return stop
