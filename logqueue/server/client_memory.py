"""What the server holds in memory for its clients, and the bound on it.

Owns: how many bytes are held for whom, and who is refused when there is no room. Must not know:
what is held. Unfinished requests and messages, requests that wait, input that waits behind them,
unread replies, watch sessions and subscriptions all count here. Records do not: they are what
the server is for, and have bounds of their own.

Bytes are what Python objects cost, roughly. Small requests that come whole and are answered at once
never ask here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from logqueue.errors import Throttled

STALL_GRACE_S = 10.0
"""When memory is short, connections that have read nothing for so long are dropped first."""


class ClientMemory:
    """The books of one server.

    Attributes:
        used: Bytes held now; `peak` the most there ever were.
        used_by_key: The same by key id, for clients that are known.
        refused: How often there was no room, by the limit that was met.
        dropped: How many connections were closed to make room.
        shares: How many holders there are.
        stalled: Connections that do not read what is written to them, longest first: since when
            (seconds of the monotonic clock), and what drops one.
    """

    def __init__(
        self, bytes_max: int, bytes_per_key_max: int, relieve: Callable[[], None] | None = None
    ) -> None:
        """Nothing is held.

        Args:
            bytes_max: For all clients together; 0 = unlimited.
            bytes_per_key_max: For all clients with one key; 0 = unlimited.
            relieve: Frees what is no longer needed; called before a client is refused.
        """
        self.used = 0
        self.peak = 0
        self.used_by_key: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.shares = 0
        self.stalled: dict[object, tuple[float, Callable[[], None]]] = {}
        self.dropped = 0
        self._bytes_max = bytes_max
        self._bytes_per_key_max = bytes_per_key_max
        self._relieve = relieve or _nothing

    def require(self, key_id: str, size: int) -> None:
        """Check that there is room for `size` bytes more.

        Raises:
            Throttled: There is not.
        """
        refusal = self._refusal(key_id, size)
        if refusal is not None:
            self._relieve()
            self._drop_stalled(key_id, size)
            refusal = self._refusal(key_id, size)
        if refusal is not None:
            limit, most, whom = refusal
            self.refused[limit] += 1
            raise Throttled(
                f"{whom} has no memory left for this request ({size} bytes more, at most {most} "
                "bytes): finish or close other requests, read replies, or send less at once",
                {"limit": limit, "max": most},
            )

    def has_room(self, key_id: str, size: int) -> bool:
        """Whether there is room for `size` bytes more, as things are."""
        return self._refusal(key_id, size) is None

    def stall(self, holder: object, drop: Callable[[], None]) -> None:
        """A connection does not read what is written to it."""
        self.stalled[holder] = (time.monotonic(), drop)

    def flow(self, holder: object) -> None:
        """A connection reads again, or is gone."""
        self.stalled.pop(holder, None)

    def _drop_stalled(self, key_id: str, size: int) -> None:
        """Close connections that have not read for a while, until there is room."""
        now = time.monotonic()
        while self.stalled and self._refusal(key_id, size) is not None:
            holder, (since, drop) = next(iter(self.stalled.items()))
            if now - since < STALL_GRACE_S:
                return
            del self.stalled[holder]
            self.dropped += 1
            drop()

    def _refusal(self, key_id: str, size: int) -> tuple[str, int, str] | None:
        most = self._bytes_per_key_max
        if most and key_id and self.used_by_key[key_id] + size > most:
            return "max_client_bytes_per_key", most, "this key"
        most = self._bytes_max
        if most and self.used + size > most:
            return "max_client_bytes", most, "the server"
        return None

    def add(self, key_id: str, size: int) -> None:
        """Enter bytes in the books, or take some out."""
        self.used += size
        self.peak = max(self.peak, self.used)
        if key_id:
            used = self.used_by_key[key_id] = self.used_by_key[key_id] + size
            if not used:
                del self.used_by_key[key_id]


class MemoryShare:
    """What one holder holds: a connection, a session."""

    __slots__ = ("_key_id", "memory", "size")

    def __init__(self, memory: ClientMemory, key_id: str = "") -> None:
        """Nothing yet.

        Args:
            memory: The books.
            key_id: Whose; "" for clients that are not known.
        """
        self.memory = memory
        self._key_id = key_id
        self.size = 0

    def resize(self, size: int, *, is_forced: bool = False) -> None:
        """Hold so many bytes from now on.

        Args:
            size: All that is held.
            is_forced: It is held already, room or not.

        Raises:
            Throttled: There is no room for more; what was held still is.
        """
        more = size - self.size
        if not more:
            return
        memory = self.memory
        if more > 0 and not is_forced:
            memory.require(self._key_id, more)
        memory.shares += (size > 0) - (self.size > 0)
        self.size = size
        memory.add(self._key_id, more)

    def belong(self, key_id: str) -> None:
        """Hold the same for another key."""
        if key_id != self._key_id:
            if self.size:
                self.memory.add(self._key_id, -self.size)
                self.memory.add(key_id, self.size)
            self._key_id = key_id

    def release(self) -> None:
        """Release everything. May be called again."""
        self.resize(0)


def _nothing() -> None:
    pass
