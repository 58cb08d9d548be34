"""What a topic is set up to do, and what a topic may be called.

Owns: the config object of the contract (defaults, clamps, the resolved durability class) and the
grammar of names. Must not know: topics, requests, HTTP.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from logqueue.core import limits
from logqueue.errors import InvalidRequest

Durability = Literal["ephemeral", "memory", "disk", "fsync"]
DURABILITIES: tuple[Durability, ...] = ("ephemeral", "memory", "disk", "fsync")

U64 = Annotated[int, msgspec.Meta(ge=0)]
I32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

_TOPIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")


def is_topic_name(name: str) -> bool:
    """Whether a topic could exist under this name (ASCII letter or digit first, 255 at most)."""
    return _TOPIC_NAME.match(name) is not None


def require_topic_name(name: str) -> None:
    """Refuse a name no topic can have.

    Raises:
        InvalidRequest: The name breaks the grammar.
    """
    if not is_topic_name(name):
        raise InvalidRequest(
            f"invalid topic name {name[:80]!r}: use 1 to {limits.NAME_BYTES_MAX} of "
            "A-Z a-z 0-9 . _ : - starting with a letter or digit"
        )


class TopicConfig(msgspec.Struct, frozen=True):
    """The config object, as sent by clients and as stored. Unknown fields are ignored."""

    type: Literal["log", "queue"] = "log"
    ttl_ms: U64 = 0
    cap_records: U64 = 0
    cap_bytes: U64 = 0
    discard: Literal["old", "reject"] = "old"
    durable: bool = False
    durability: Durability | None = None
    priority: I32 | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: U64 = 120_000
    dedupe_node: bool = True
    lease_ms: U64 = 30_000
    claim_jitter_ms: U64 = 0
    max_deliveries: U64 = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    @property
    def is_queue(self) -> bool:
        """Whether jobs can be claimed."""
        return self.type == "queue"

    @property
    def is_logged(self) -> bool:
        """Whether records go to the write-ahead log at all."""
        return self.durability != "ephemeral"

    @property
    def diverts_after(self) -> int:
        """Deliveries after which a job goes to the dead letters; 0 when it never does."""
        return self.max_deliveries if self.dead_letter is not None else 0

    def resolved(self) -> TopicConfig:
        """This config with clamps applied and the durability class spelled out.

        Raises:
            InvalidRequest: A number is outside its type's range.
        """
        for field in _U64_FIELDS:
            if getattr(self, field) > limits.U64_MAX:
                raise InvalidRequest(f"`{field}` must be at most {limits.U64_MAX}")
        durability = self.durability or ("fsync" if self.durable else "disk")
        return msgspec.structs.replace(
            self,
            durability=durability,
            durable=durability == "fsync",
            lease_ms=clamp_lease_ms(self.lease_ms),
            claim_jitter_ms=min(self.claim_jitter_ms, limits.CLAIM_JITTER_MS_MAX),
        )

    def require_dead_letter(self, topic: str) -> None:
        """Refuse a dead-letter target that can not work for this topic.

        Raises:
            InvalidRequest: The target's name is invalid, or a queue names itself.
        """
        target = self.dead_letter
        if target is None:
            return
        if not is_topic_name(target):
            raise InvalidRequest(
                f"`dead_letter` {target[:80]!r} is not a valid topic name", {"dead_letter": target}
            )
        if self.is_queue and target == topic:
            raise InvalidRequest(
                f"`dead_letter` must name another topic than {topic!r} itself",
                {"dead_letter": target},
            )


_U64_FIELDS = (
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "idempotency_window_ms",
    "lease_ms",
    "claim_jitter_ms",
    "max_deliveries",
)


def clamp_lease_ms(lease_ms: int) -> int:
    """A lease duration brought into its allowed range, in milliseconds."""
    return min(max(lease_ms, limits.LEASE_MS_MIN), limits.LEASE_MS_MAX)
