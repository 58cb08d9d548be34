"""Bounds of request members that the types of the wire structs do not say.

Owns: lengths, patterns, the grammar of predicates, rules between members, as JSON Schema. Lengths
are counted in bytes by the server and in characters by JSON Schema: what is said here is never
narrower than the truth.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from logqueue.api.bodies import dead_letters as letter_bodies
from logqueue.api.bodies import feeds as feed_bodies
from logqueue.api.bodies import job_batches as batch_bodies
from logqueue.api.bodies import jobs as job_bodies
from logqueue.api.bodies import producers as producer_bodies
from logqueue.api.bodies import queues as queue_bodies
from logqueue.api.bodies import reads as read_bodies
from logqueue.api.bodies import records as record_bodies
from logqueue.api.bodies import routers as router_bodies
from logqueue.api.bodies import schedules as schedule_bodies
from logqueue.api.operations.row import Schema
from logqueue.core.commands import OnConflict
from logqueue.firing_times import CRON_BYTES_MAX
from logqueue.model import limits
from logqueue.model.config import TopicOptions

TOPIC_NAME = f"^[A-Za-z0-9][A-Za-z0-9._:-]{{0,{limits.NAME_BYTES_MAX - 1}}}$"
ROUTER_NAME = f"^[A-Za-z0-9][A-Za-z0-9._:>-]{{0,{limits.NAME_BYTES_MAX - 1}}}$"

_NODE: Schema = {"maxLength": limits.NODE_BYTES_MAX}
_WORKER: Schema = {"minLength": 1, "maxLength": limits.NODE_BYTES_MAX}
_HOLDER: Schema = {"minLength": 1}
_TOPIC: Schema = {"pattern": TOPIC_NAME}
_ERROR: Schema = {"maxLength": limits.ERROR_BYTES_MAX}
_SEQS: Schema = {"maxItems": limits.SEQS_PER_CALL_MAX}
_LEASES: Schema = {
    "maxItems": limits.SEQS_PER_CALL_MAX,
    "items": {"type": "string", "pattern": "^(lease_[0-9a-fA-F]{1,64})?$"},
    "description": "One per seq in the same order, empty texts where there is none; or empty.",
}
_ATTEMPT: Schema = {"maxLength": producer_bodies.ATTEMPT_BYTES_MAX}
_RATE = {"minimum": 1, "maximum": limits.RATE_PER_S_MAX}
_PREDICATE: Schema = {
    "description": "By tag: a text (equal, or a prefix when it ends in `*`), or "
    '`["tag","Eq","text"]`, or `["tag","Glob","prefix*"]`.',
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "prefixItems": [{"const": "tag"}, {"const": "Eq"}, {"type": "string"}],
            "items": False,
            "minItems": 3,
        },
        {
            "type": "array",
            "prefixItems": [
                {"const": "tag"},
                {"const": "Glob"},
                {"type": "string", "pattern": "\\*$"},
            ],
            "items": False,
            "minItems": 3,
        },
        {"type": "null"},
    ],
}

BOUNDS: dict[tuple[type[msgspec.Struct], str], Schema] = {
    (TopicOptions, "dead_letter"): _TOPIC,
    (TopicOptions, "archive"): _TOPIC,
    (record_bodies.JobBody, "tag"): {"maxLength": limits.TAG_BYTES_MAX},
    (record_bodies.JobBody, "node"): _NODE,
    (record_bodies.JobBody, "delay_ms"): {"maximum": limits.DELAY_MS_MAX},
    (record_bodies.JobBody, "key"): {"minLength": 1, "maxLength": limits.JOB_KEY_BYTES_MAX},
    (record_bodies.JobBody, "group"): {"minLength": 1, "maxLength": limits.GROUP_BYTES_MAX},
    (batch_bodies.OpenBatchBody, "name"): _TOPIC,
    (batch_bodies.CallbackBody, "topic"): _TOPIC,
    (batch_bodies.CallbackBody, "record"): {
        "properties": {name: {"type": "null"} for name in batch_bodies.NOT_OF_CALLBACKS},
        "description": "As in a write, but without `key` and `on_conflict`; at most 16 KiB.",
    },
    (record_bodies.JobBody, "then"): {"maxItems": limits.STEPS_MAX},
    (record_bodies.JobBody, "batch"): _TOPIC,
    (record_bodies.StepBody, "topic"): _TOPIC,
    (record_bodies.StepBody, "record"): {
        "properties": {name: {"type": "null"} for name in record_bodies.NOT_OF_STEPS},
        "description": "As in a write, but without `then`, `key`, and what goes with a key.",
    },
    (record_bodies.JobsBody, "records"): {"minItems": 1, "maxItems": limits.RECORDS_PER_WRITE_MAX},
    (record_bodies.JobsBody, "node"): _NODE,
    (record_bodies.JobsBody, "idempotency_key"): {"maxLength": limits.KEY_BYTES_MAX},
    (read_bodies.DeleteBody, "match"): _PREDICATE,
    (queue_bodies.ClaimBody, "node"): _WORKER,
    (queue_bodies.AckBody, "node"): _HOLDER,
    (queue_bodies.AckBody, "seqs"): _SEQS,
    (queue_bodies.AckBody, "lease_ids"): _LEASES,
    (queue_bodies.AckBody, "append"): {"maxItems": limits.FOLLOW_UP_TOPICS_MAX},
    (queue_bodies.FollowUpBody, "topic"): _TOPIC,
    (queue_bodies.FollowUpBody, "records"): {
        "minItems": 1,
        "maxItems": limits.FOLLOW_UP_RECORDS_MAX,
    },
    (queue_bodies.FollowUpBody, "node"): _NODE,
    (queue_bodies.FollowUpBody, "idempotency_key"): {"maxLength": limits.KEY_BYTES_MAX},
    (queue_bodies.NackBody, "node"): _HOLDER,
    (queue_bodies.NackBody, "seqs"): _SEQS,
    (queue_bodies.NackBody, "lease_ids"): _LEASES,
    (queue_bodies.NackBody, "error"): _ERROR,
    (queue_bodies.RejectBody, "node"): _HOLDER,
    (queue_bodies.RejectBody, "seqs"): _SEQS,
    (queue_bodies.RejectBody, "lease_ids"): _LEASES,
    (queue_bodies.RejectBody, "error"): _ERROR,
    (queue_bodies.ExtendBody, "node"): _HOLDER,
    (queue_bodies.ExtendBody, "seqs"): _SEQS,
    (queue_bodies.ExtendBody, "lease_ids"): _LEASES,
    (job_bodies.PurgeBody, "states"): {"minItems": 1},
    (job_bodies.ReleaseBody, "seqs"): _SEQS,
    (job_bodies.JobFilterBody, "seqs"): {"maxItems": limits.SEQS_PER_CHANGE_MAX},
    (job_bodies.JobFilterBody, "text"): {"maxLength": limits.SEARCH_TEXT_CHARS_MAX},
    (job_bodies.ChangeJobsBody, "limit"): {"minimum": 1},
    (job_bodies.ChangeJobsBody, "rate_per_s"): _RATE,
    (letter_bodies.RedriveBody, "seqs"): {"maxItems": limits.REDRIVE_MAX},
    (letter_bodies.RedriveBody, "to"): _TOPIC,
    (letter_bodies.EditBody, "tag"): {"maxLength": limits.TAG_BYTES_MAX},
    (letter_bodies.RedriveBody, "match"): _PREDICATE,
    (letter_bodies.RedriveBody, "rate_per_s"): _RATE,
    (letter_bodies.DropBody, "seqs"): {"maxItems": limits.REDRIVE_MAX},
    (letter_bodies.DropBody, "match"): _PREDICATE,
    (letter_bodies.DropBody, "rate_per_s"): _RATE,
    (feed_bodies.WatchBody, "topics"): {
        "minProperties": 1,
        "maxProperties": limits.WATCHED_TOPICS_MAX,
    },
    (producer_bodies.StageBody, "topic"): _TOPIC,
    (producer_bodies.StageBody, "records"): {
        "minItems": 1,
        "maxItems": limits.RECORDS_PER_WRITE_MAX,
        "description": "As in a write, but without `key` and what goes with it.",
    },
    (producer_bodies.StageBody, "attempt"): _ATTEMPT,
    (producer_bodies.StageBody, "chunk"): {"maximum": limits.CHUNKS_PER_EPOCH_MAX - 1},
    (producer_bodies.StageBody, "node"): _NODE,
    (producer_bodies.CommitBody, "parts"): {"maxItems": limits.CHUNKS_PER_EPOCH_MAX},
    (producer_bodies.CommitBody, "content"): {
        "maxLength": producer_bodies.CONTENT_BYTES_MAX,
        "description": "Digest of the epoch's content: a repeat with another one is refused.",
    },
    (producer_bodies.PartBody, "attempt"): _ATTEMPT,
    (schedule_bodies.ScheduleBody, "topic"): _TOPIC,
    (schedule_bodies.ScheduleBody, "cron"): {"maxLength": CRON_BYTES_MAX},
    (schedule_bodies.ScheduleBody, "every_ms"): {
        "minimum": limits.EVERY_MS_MIN,
        "maximum": limits.EVERY_MS_MAX,
    },
    (schedule_bodies.ScheduleBody, "jitter_ms"): {"maximum": limits.SCHEDULE_JITTER_MS_MAX},
    (router_bodies.RouterBody, "source"): _TOPIC,
    (router_bodies.RouterBody, "dest"): _TOPIC,
    (router_bodies.RouterBody, "filter"): _PREDICATE,
}
"""By struct and member. The bound of a nullable text or array applies to the text or array."""

_EITHER = [
    {"properties": {"on_conflict": {"type": "null"}}},
    {"properties": {"on_duplicate": {"type": "null"}}},
]
_THE_SAME = [
    {"properties": {"on_conflict": {"const": same}, "on_duplicate": {"const": same}}}
    for same in get_args(OnConflict)
]

RULES: dict[type[msgspec.Struct], Schema] = {
    TopicOptions: {
        "anyOf": [
            {"required": ["dead_letter"], "properties": {"dead_letter": {"type": "string"}}},
            {
                "properties": {
                    "on_exhausted": {"enum": ["drop", "hold", None]},
                    "on_expire": {"const": "drop"},
                }
            },
        ]
    },
    record_bodies.JobBody: {
        "anyOf": [
            {"properties": {"delay_ms": {"type": "null"}}},
            {"properties": {"not_before": {"type": "null"}}},
        ],
        "allOf": [
            {
                "anyOf": [
                    {"properties": {"unique": {"type": "null"}}},
                    {"required": ["key"], "properties": {"key": {"type": "string"}}},
                ]
            },
            {"anyOf": [*_EITHER, *_THE_SAME]},
        ],
    },
    schedule_bodies.ScheduleBody: {
        "oneOf": [
            {"required": ["cron"], "properties": {"cron": {"type": "string"}}},
            {"required": ["every_ms"], "properties": {"every_ms": {"type": "integer"}}},
        ]
    },
}
"""By struct: what its members must be together."""


def bind(member: dict[str, Any], bound: Schema) -> None:
    """Add a bound to the schema of a member; where it may be null, to its other form."""
    forms = [form for form in member.get("anyOf", ()) if form != {"type": "null"}]
    target = forms[0] if forms and "anyOf" not in bound else member
    target.update(bound)
