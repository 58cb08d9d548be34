"""What a topic or a router is set up to do, and what it may be called.

Owns: the config object of the contract (defaults, clamps, the resolved durability class), the
options of a router, and the grammar of names. Must not know: topics, requests, HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from math import isfinite
from typing import Annotated, Any, Literal

import msgspec

from logqueue.errors import (
    InvalidRequest,
    quoted,
)
from logqueue.json_problems import type_problem
from logqueue.model import limits
from logqueue.model.tag_predicate import Predicate

Durability = Literal["ephemeral", "memory", "disk", "fsync"]
Guarantee = Literal["at_least_once", "exactly_once"]
DURABILITIES: tuple[Durability, ...] = ("ephemeral", "memory", "disk", "fsync")

U64 = Annotated[int, msgspec.Meta(ge=0, extra_json_schema={"maximum": limits.U64_MAX})]
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
            f"invalid topic name {quoted(name[:80])}: use 1 to {limits.NAME_BYTES_MAX} of "
            "A-Z a-z 0-9 . _ : - starting with a letter or digit"
        )


_ROUTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}\Z")


def require_router_name(name: str) -> None:
    """Refuse a name no router can have: those of topics, and ">" behind the first character.

    Raises:
        InvalidRequest: The name breaks the grammar.
    """
    if _ROUTER_NAME.match(name) is None:
        raise InvalidRequest(
            f"invalid router name {quoted(name[:80])}: use 1 to {limits.NAME_BYTES_MAX} of "
            "A-Z a-z 0-9 . _ : - > starting with a letter or digit"
        )


class BackoffOptions(msgspec.Struct, frozen=True):
    """How long a job that came back stays out of rotation; see `backoff.delay_ms`.

    Attributes:
        base_ms: Delay after the first delivery.
        step_ms: What "linear" adds for each further delivery.
        factor: What "exponential" multiplies by for each further delivery, 1 to 1000.
        max_ms: Longest delay, before jitter; at most a day.
        jitter: Share of the delay that is left to chance, 0 to 1: it only makes it shorter.
    """

    kind: Literal["constant", "linear", "exponential"]
    base_ms: U64 = 1000
    step_ms: U64 = 0
    factor: Annotated[float, msgspec.Meta(ge=1, le=1000)] = 2.0
    max_ms: U64 = 300_000
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class ClaimRateOptions(msgspec.Struct, frozen=True):
    """How many jobs a queue hands out: `per_s` in the long run, `burst` at once (None: as many as
    in one second, at least one)."""

    per_s: Annotated[float, msgspec.Meta(gt=0, le=limits.RATE_PER_S_MAX)]
    burst: Annotated[int, msgspec.Meta(ge=1, le=limits.RATE_PER_S_MAX)] | None = None

    @property
    def burst_jobs(self) -> int:
        """Jobs that may go at once after a long rest."""
        return self.burst if self.burst is not None else max(int(self.per_s), 1)


class SqsOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a queue of SQS is set up to do, as far as nothing else of its config says it.

    Attributes:
        delay_s: How long its messages wait that name no delay of their own, in seconds.
        wait_s: How long a receive waits that does not say so, in seconds.
        message_bytes_max: The longest message, with its attributes.
        redrive_permission: Which queues may have it as their dead-letter queue.
        redrive_sources: Names of those, where it is "byQueue".
        deduplicates_content: Messages of a FIFO queue that name no deduplication id have that of
            their body.
        deduplication_scope: Where a deduplication id counts.
        throughput_limit: Kept, and without effect.
        created_at, modified_at: ms since the epoch; 0 when not known.
        tags: Names and values that mean nothing to the server.
    """

    delay_s: Annotated[int, msgspec.Meta(ge=0, le=900)] = 0
    wait_s: Annotated[int, msgspec.Meta(ge=0, le=20)] = 0
    message_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=1 << 20)] = 1 << 20
    redrive_permission: Literal["allowAll", "denyAll", "byQueue"] = "allowAll"
    redrive_sources: tuple[str, ...] = ()
    deduplicates_content: bool = False
    deduplication_scope: Literal["queue", "messageGroup"] = "queue"
    throughput_limit: Literal["perQueue", "perMessageGroupId"] = "perQueue"
    created_at: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    modified_at: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    tags: dict[str, str] = {}


GroupWeight = Annotated[int, msgspec.Meta(ge=1, le=limits.GROUP_WEIGHT_MAX)]


class GroupOptions(msgspec.Struct, frozen=True):
    """How jobs that have a group are handed out.

    Attributes:
        mode: "fair": groups take turns. "fifo": one job of a group at a time, in order.
        weights: Of "fair": how many jobs a group may give in one turn; 1 where it is not named.
        max_in_flight_per_group: Jobs of one group under a lease at most; 0 for no limit.
        rate_per_group: How many jobs of one group are handed out; None for no limit.
    """

    mode: Literal["fair", "fifo"]
    weights: dict[str, GroupWeight] | None = None
    max_in_flight_per_group: U64 = 0
    rate_per_group: ClaimRateOptions | None = None

    def require_valid(self) -> None:
        """Refuse what cannot work.

        Raises:
            InvalidRequest: A number is out of range, or weights are given where none count.
        """
        if self.max_in_flight_per_group > limits.U64_MAX:
            raise InvalidRequest(
                f"`groups.max_in_flight_per_group` must be at most {limits.U64_MAX}"
            )
        if self.weights and self.mode != "fair":
            raise InvalidRequest(
                '`groups.weights` are for "mode":"fair"; leave them out where groups are "fifo"'
            )
        if self.weights and len(self.weights) > limits.GROUP_WEIGHTS_MAX:
            raise InvalidRequest(
                f"`groups.weights` has {len(self.weights)} groups; at most "
                f"{limits.GROUP_WEIGHTS_MAX} are allowed"
            )
        for group in self.weights or ():
            if not 0 < len(group.encode()) <= limits.GROUP_BYTES_MAX:
                raise InvalidRequest(
                    f"a group in `groups.weights` has {len(group.encode())} bytes; use 1 to "
                    f"{limits.GROUP_BYTES_MAX}"
                )


class ResultOptions(msgspec.Struct, frozen=True):
    """What a queue keeps of jobs that have ended: how, and the result or error.

    Attributes:
        keep_ms: How long, at most 30 days.
        max_bytes: In how much memory, at most 1 GiB; the oldest go first.
    """

    keep_ms: U64 = 3_600_000
    max_bytes: U64 = 16 << 20


Exhausted = Literal["dead_letter", "drop", "hold"]
LATER_FIELDS = ("sqs", "priority_ageing_ms", "groups", "results")
"""Fields of the config that are shown, and count for its version, only where they are set: they
came later, and nothing changes for topics that do not use them."""


class TopicOptions(msgspec.Struct, frozen=True):
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
    retry_backoff: BackoffOptions | None = None
    on_exhausted: Exhausted | None = None
    on_expire: Literal["drop", "dead_letter"] = "drop"
    claim_rate: ClaimRateOptions | None = None
    max_in_flight: U64 = 0
    paused: bool = False
    archive: str | None = None
    sqs: SqsOptions | None = None
    priority_ageing_ms: U64 = 0
    groups: GroupOptions | None = None
    results: ResultOptions | None = None

    @property
    def is_queue(self) -> bool:
        """Whether jobs can be claimed."""
        return self.type == "queue"

    @property
    def is_logged(self) -> bool:
        """Whether records go to the write-ahead log at all."""
        return self.durability != "ephemeral"

    @property
    def when_exhausted(self) -> Exhausted | None:
        """What happens to a job that was delivered too often; None: it is delivered again."""
        if self.on_exhausted is not None:
            return self.on_exhausted
        return "dead_letter" if self.dead_letter is not None else None

    @property
    def version(self) -> str:
        """Names this config: another one has another version, an equal one the same.

        `paused` does not count. It is state that operators change while others edit the config.
        """
        counted = {**self.members, "paused": False}
        return blake2b(msgspec.json.encode(counted), digest_size=8).hexdigest()

    @property
    def members(self) -> dict[str, Any]:
        """The fields by name, without those of `LATER_FIELDS` that are not set."""
        members = msgspec.structs.asdict(self)
        for field in LATER_FIELDS:
            if not members[field]:
                del members[field]
        return members

    def resolved(self) -> TopicOptions:
        """This config with clamps applied and the durability class spelled out.

        Raises:
            InvalidRequest: A number is outside its type's range.
        """
        for field in _U64_FIELDS:
            if getattr(self, field) > limits.U64_MAX:
                raise InvalidRequest(f"`{field}` must be at most {limits.U64_MAX}")
        backoff = self.retry_backoff
        if backoff is not None:
            if not (isfinite(backoff.factor) and isfinite(backoff.jitter)):
                raise InvalidRequest("`retry_backoff` must hold finite numbers")
            if max(backoff.base_ms, backoff.step_ms, backoff.max_ms) > limits.U64_MAX:
                raise InvalidRequest(f"`retry_backoff` must hold at most {limits.U64_MAX} ms")
            backoff = msgspec.structs.replace(
                backoff,
                base_ms=min(backoff.base_ms, limits.BACKOFF_MS_MAX),
                step_ms=min(backoff.step_ms, limits.BACKOFF_MS_MAX),
                max_ms=min(backoff.max_ms, limits.BACKOFF_MS_MAX),
            )
        groups = self.groups
        if groups is not None:
            groups.require_valid()
            weights = dict(sorted(groups.weights.items())) if groups.weights else None
            groups = msgspec.structs.replace(groups, weights=weights)
        results = self.results
        if results is not None:
            if max(results.keep_ms, results.max_bytes) > limits.U64_MAX:
                raise InvalidRequest(f"`results` must hold numbers up to {limits.U64_MAX}")
            results = ResultOptions(
                min(results.keep_ms, limits.RESULTS_KEEP_MS_MAX),
                min(results.max_bytes, limits.RESULTS_BYTES_MAX),
            )
        durability = self.durability or ("fsync" if self.durable else "disk")
        return msgspec.structs.replace(
            self,
            durability=durability,
            durable=durability == "fsync",
            lease_ms=clamp_lease_ms(self.lease_ms),
            claim_jitter_ms=min(self.claim_jitter_ms, limits.CLAIM_JITTER_MS_MAX),
            retry_backoff=backoff,
            groups=groups,
            results=results,
        )

    def merged(self, changes: Mapping[str, Any]) -> TopicOptions:
        """This config with a JSON merge patch (RFC 7386) applied, not yet resolved.

        Raises:
            InvalidRequest: A field would get a wrong type or a number out of range.
        """
        fields: dict[str, Any] = msgspec.to_builtins(self)
        if "durable" in changes and "durability" not in changes:
            # The class that was spelled out for the old flag must not outvote the new one.
            fields["durability"] = None
        try:
            return msgspec.convert(_merged(fields, changes), TopicOptions)
        except msgspec.ValidationError as error:
            problem = type_problem(error, TopicOptions, "the config")
            raise InvalidRequest(f"invalid config: {problem}") from None

    def require_targets(self, topic: str) -> None:
        """Refuse targets of copies that cannot work for this topic.

        Raises:
            InvalidRequest: A target's name is invalid, a queue names itself, or dead letters are
                asked for and there is nowhere to put them.
        """
        for field in ("dead_letter", "archive"):
            target = getattr(self, field)
            if target is None:
                continue
            if not is_topic_name(target):
                raise InvalidRequest(
                    f"`{field}` {quoted(target[:80])} is not a valid topic name", {field: target}
                )
            if self.is_queue and target == topic:
                raise InvalidRequest(
                    f"`{field}` must name another topic than {quoted(topic)} itself",
                    {field: target},
                )
        if self.dead_letter is None:
            for field in ("on_exhausted", "on_expire"):
                if getattr(self, field) == "dead_letter":
                    raise InvalidRequest(
                        f'`{field}` "dead_letter" needs `dead_letter`, the topic they go to',
                        {"field": field},
                    )


_U64_FIELDS = (
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "idempotency_window_ms",
    "lease_ms",
    "claim_jitter_ms",
    "max_deliveries",
    "max_in_flight",
    "priority_ageing_ms",
)


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def clamp_lease_ms(lease_ms: int) -> int:
    """A lease duration brought into its allowed range, in milliseconds."""
    return min(max(lease_ms, limits.LEASE_MS_MIN), limits.LEASE_MS_MAX)


class RouterOptions(msgspec.Struct, frozen=True):
    """What may be changed about a router.

    Attributes:
        preserve_node, preserve_tag: Whether copies keep `$node` and `$tag`.
        filter: Which records are copied; None copies all.
        allow_cycle: Whether this edge may close a loop.
        guarantee: Copies are exactly-once in any case, since a copy and the router's progress are
            one fact in the log; "exactly_once" also stamps their meta, for consumers.
    """

    preserve_node: bool = True
    preserve_tag: bool = True
    filter: Predicate | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"

    @property
    def keeps_records(self) -> bool:
        """Whether a copied record has the very bytes of its original."""
        return self.preserve_node and self.preserve_tag and self.guarantee == "at_least_once"
