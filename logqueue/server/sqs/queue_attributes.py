"""Attributes of queues: which field of the config each of them is.

Owns: names, ranges, defaults, both directions. Must not know: actions, requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from logqueue.core.queue_topic import QueueTopic
from logqueue.model.config import GroupOptions, SqsOptions, TopicOptions
from logqueue.server.sqs.addresses import FIFO, Addresses, queue_of_arn
from logqueue.server.sqs.refusals import (
    INVALID_ATTRIBUTE_NAME,
    INVALID_ATTRIBUTE_VALUE,
    INVALID_PARAMETER,
    UNSUPPORTED,
    SqsRefusal,
)

RETENTION_S: Final = 345_600
VISIBILITY_S: Final = 30
VISIBILITY_S_MAX: Final = 43_200
RECEIVES_MAX: Final = 1000

_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "VisibilityTimeout": (0, VISIBILITY_S_MAX),
    "MessageRetentionPeriod": (60, 1_209_600),
    "DelaySeconds": (0, 900),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "MaximumMessageSize": (1024, 1 << 20),
}
_OF_OPTIONS: Final[Mapping[str, str]] = {
    "DelaySeconds": "delay_s",
    "ReceiveMessageWaitTimeSeconds": "wait_s",
    "MaximumMessageSize": "message_bytes_max",
}
_OF_FIFO: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "ContentBasedDeduplication": ("deduplicates_content", {"true": True, "false": False}),
    "DeduplicationScope": ("deduplication_scope", {w: w for w in ("queue", "messageGroup")}),
    "FifoThroughputLimit": ("throughput_limit", {w: w for w in ("perQueue", "perMessageGroupId")}),
}
DEDUPLICATION_MS: Final = 300_000
_NOT_CARRIED: Final = frozenset(
    ("Policy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
)
SHOWN: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "DelaySeconds",
    "LastModifiedTimestamp",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "QueueArn",
    "ReceiveMessageWaitTimeSeconds",
    "RedriveAllowPolicy",
    "RedrivePolicy",
    "VisibilityTimeout",
)
KNOWN: Final = frozenset((*SHOWN, "All", "FifoQueue", *_OF_FIFO, *_NOT_CARRIED))
_WHOLE: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_policies: Final = msgspec.json.Decoder(dict[str, Any])


def created(
    name: str, attributes: Mapping[str, str], tags: Mapping[str, str], now: int
) -> TopicOptions:
    """The config of a new queue, resolved.

    Raises:
        SqsRefusal: An attribute is not known, or its value is not allowed, or the name is for the
            other kind of queue.
    """
    attributes = dict(attributes)
    wanted = attributes.pop("FifoQueue", "false")
    if wanted not in ("true", "false"):
        raise _invalid("FifoQueue", "true or false")
    is_fifo = wanted == "true"
    if is_fifo is not name.endswith(FIFO):
        raise SqsRefusal(
            INVALID_PARAMETER,
            "the name of a FIFO queue must end with .fifo, and no other may: send FifoQueue true",
        )
    changes = changes_of(attributes, is_fifo=is_fifo)
    options = {"created_at": now, "modified_at": now, "tags": dict(tags)}
    changes["sqs"] = {**changes.get("sqs", {}), **options}
    base = TopicOptions(
        type="queue",
        ttl_ms=RETENTION_S * 1000,
        lease_ms=VISIBILITY_S * 1000,
        groups=GroupOptions("fifo" if is_fifo else "fair"),
        idempotency_window_ms=DEDUPLICATION_MS,
    )
    return base.merged(changes).resolved()


def is_fifo(topic: QueueTopic) -> bool:
    """Whether a queue is a FIFO queue of SQS: by its name, and by what it does."""
    groups = topic.config.groups
    return groups is not None and groups.mode == "fifo" and topic.name.endswith(FIFO)


def changes_of(attributes: Mapping[str, str], *, is_fifo: bool) -> dict[str, Any]:
    """The merge patch of a config that sets some attributes.

    Raises:
        SqsRefusal: An attribute is not known, or its value is not allowed.
    """
    changes: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in attributes.items():
        if name in _OF_OPTIONS:
            options[_OF_OPTIONS[name]] = _number(name, value)
        elif name == "VisibilityTimeout":
            changes["lease_ms"] = _number(name, value) * 1000
        elif name == "MessageRetentionPeriod":
            changes["ttl_ms"] = _number(name, value) * 1000
        elif name == "RedrivePolicy":
            changes |= _redrive(value)
        elif name == "RedriveAllowPolicy":
            options |= _redrive_allow(value)
        elif name in _OF_FIFO and is_fifo:
            field, values = _OF_FIFO[name]
            if value not in values:
                raise _invalid(name, " or ".join(values))
            options[field] = values[value]
        else:
            _refuse_unless_empty(name, value)
    if options:
        changes["sqs"] = options
    return changes


def _refuse_unless_empty(name: str, value: str) -> None:
    """Whatever is not carried may be switched off, which it is."""
    if name in _OF_FIFO:
        raise SqsRefusal(
            INVALID_ATTRIBUTE_NAME, f"unknown attribute {name}: only FIFO queues have it"
        )
    if name not in _NOT_CARRIED:
        raise SqsRefusal(INVALID_ATTRIBUTE_NAME, f"unknown attribute {name[:80]}")
    if value.lower() in ("", "false") or name == "KmsDataKeyReusePeriodSeconds":
        return
    raise SqsRefusal(
        UNSUPPORTED,
        f"{name} is not supported: keys of the server decide who may do what, and data is "
        "encrypted by the disk below it",
    )


def _number(name: str, value: str) -> int:
    low, high = _RANGES[name]
    if not _WHOLE.fullmatch(value) or not low <= int(value) <= high:
        raise _invalid(name, f"an integer from {low} to {high}")
    return int(value)


def _invalid(name: str, expected: str) -> SqsRefusal:
    return SqsRefusal(
        INVALID_ATTRIBUTE_VALUE, f"invalid value for the parameter {name}: it must be {expected}"
    )


def _invalid_policy(name: str, expected: str) -> SqsRefusal:
    return SqsRefusal(
        INVALID_PARAMETER, f"invalid value for the parameter {name}: it must be {expected}"
    )


def _policy(name: str, value: str) -> dict[str, Any]:
    try:
        return _policies.decode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _invalid_policy(name, "a JSON object") from None


def _redrive(value: str) -> dict[str, Any]:
    name = "RedrivePolicy"
    if not value:
        return {"dead_letter": None, "max_deliveries": None, "on_exhausted": None}
    policy = _policy(name, value)
    target = policy.pop("deadLetterTargetArn", None)
    bound = policy.pop("maxReceiveCount", "10")
    if policy:
        raise _invalid_policy(name, "an object with deadLetterTargetArn and maxReceiveCount")
    text = str(bound) if isinstance(bound, int | str) and not isinstance(bound, bool) else ""
    if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= RECEIVES_MAX:
        raise _invalid_policy(name, f"an object whose maxReceiveCount is from 1 to {RECEIVES_MAX}")
    queue = queue_of_arn(target, f"{name}.deadLetterTargetArn")
    return {"dead_letter": queue, "max_deliveries": int(text), "on_exhausted": None}


def _redrive_allow(value: str) -> dict[str, Any]:
    name = "RedriveAllowPolicy"
    if not value:
        return {"redrive_permission": None, "redrive_sources": None}
    policy = _policy(name, value)
    permission = policy.pop("redrivePermission", None)
    sources = policy.pop("sourceQueueArns", None)
    is_by_queue = permission == "byQueue"
    is_listed = isinstance(sources, list) and 1 <= len(sources) <= 10
    if (
        policy
        or permission not in ("allowAll", "denyAll", "byQueue")
        or (is_by_queue and not is_listed)
        or (not is_by_queue and sources is not None)
    ):
        raise _invalid_policy(
            name,
            "an object whose redrivePermission is allowAll, denyAll, or byQueue with 1 to 10 "
            "sourceQueueArns",
        )
    names = [queue_of_arn(arn, f"{name}.sourceQueueArns") for arn in sources or ()]
    return {"redrive_permission": permission, "redrive_sources": names}


def shown(topic: QueueTopic, wanted: Iterable[str], addresses: Addresses) -> dict[str, str]:
    """The attributes of a queue that a caller asks for, as far as they have a value.

    Raises:
        SqsRefusal: One of them is not known.
    """
    names = {*wanted}
    for name in sorted(names):
        if name not in KNOWN:
            raise SqsRefusal(INVALID_ATTRIBUTE_NAME, f"unknown attribute {name[:80]}")
    everything = _all(topic, addresses)
    if "All" in names:
        return everything
    return {name: value for name, value in everything.items() if name in names}


def _all(topic: QueueTopic, addresses: Addresses) -> dict[str, str]:
    config, queue = topic.config, topic.queue
    options = config.sqs or SqsOptions()
    found: dict[str, str | int] = {
        "QueueArn": addresses.arn(topic.name),
        "ApproximateNumberOfMessages": topic.ready,
        "ApproximateNumberOfMessagesNotVisible": queue.leased,
        "ApproximateNumberOfMessagesDelayed": len(queue.delayed),
        "DelaySeconds": options.delay_s,
        "MaximumMessageSize": options.message_bytes_max,
        "MessageRetentionPeriod": config.ttl_ms // 1000,
        "ReceiveMessageWaitTimeSeconds": options.wait_s,
        "VisibilityTimeout": config.lease_ms // 1000,
    }
    for name, at in (
        ("CreatedTimestamp", options.created_at),
        ("LastModifiedTimestamp", options.modified_at),
    ):
        if at:
            found[name] = at // 1000
    if config.dead_letter is not None and config.max_deliveries:
        policy = {
            "deadLetterTargetArn": addresses.arn(config.dead_letter),
            "maxReceiveCount": config.max_deliveries,
        }
        found["RedrivePolicy"] = msgspec.json.encode(policy).decode()
    if is_fifo(topic):
        found["FifoQueue"] = "true"
        found["ContentBasedDeduplication"] = str(options.deduplicates_content).lower()
        found["DeduplicationScope"] = options.deduplication_scope
        found["FifoThroughputLimit"] = options.throughput_limit
    if options.redrive_permission != "allowAll":
        allow: dict[str, Any] = {"redrivePermission": options.redrive_permission}
        if options.redrive_sources:
            allow["sourceQueueArns"] = [*map(addresses.arn, options.redrive_sources)]
        found["RedriveAllowPolicy"] = msgspec.json.encode(allow).decode()
    return {name: str(value) for name, value in found.items()}


def differs(topic: QueueTopic, attributes: Mapping[str, str]) -> str | None:
    """The first of some attributes that a queue has with another value; None when all are alike.

    Raises:
        SqsRefusal: An attribute is not known, or its value is not allowed.
    """
    have, kind = topic.config, is_fifo(topic)
    for name, value in attributes.items():
        if name == "FifoQueue":
            if value != str(kind).lower():
                return name
            continue
        changes = changes_of({name: value}, is_fifo=kind)
        if changes and have.merged(changes).resolved() != have:
            return name
    return None
