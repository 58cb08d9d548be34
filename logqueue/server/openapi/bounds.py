"""Bounds of request members that the types of the wire structs do not say.

Owns: lengths, patterns, the grammar of predicates, rules between members, as JSON Schema. Lengths
are counted in bytes by the server and in characters by JSON Schema: what is said here is never
narrower than the truth.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logqueue import feed_wire, wire, wire_jobs, wire_producers, wire_records
from logqueue.core import limits
from logqueue.core.config import TopicConfig
from logqueue.server.openapi.row import Schema

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
_ATTEMPT: Schema = {"maxLength": wire_producers.ATTEMPT_BYTES_MAX}
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
    (TopicConfig, "dead_letter"): _TOPIC,
    (TopicConfig, "archive"): _TOPIC,
    (wire_records.JobBody, "tag"): {"maxLength": limits.TAG_BYTES_MAX},
    (wire_records.JobBody, "node"): _NODE,
    (wire_records.JobBody, "delay_ms"): {"maximum": limits.DELAY_MS_MAX},
    (wire_records.JobBody, "key"): {"minLength": 1, "maxLength": limits.JOB_KEY_BYTES_MAX},
    (wire_records.JobsBody, "records"): {"minItems": 1, "maxItems": limits.RECORDS_PER_WRITE_MAX},
    (wire_records.JobsBody, "node"): _NODE,
    (wire_records.JobsBody, "idempotency_key"): {"maxLength": limits.KEY_BYTES_MAX},
    (wire.DeleteBody, "match"): _PREDICATE,
    (wire.ClaimBody, "node"): _WORKER,
    (wire.AckBody, "node"): _HOLDER,
    (wire.AckBody, "seqs"): _SEQS,
    (wire.AckBody, "lease_ids"): _LEASES,
    (wire.NackBody, "node"): _HOLDER,
    (wire.NackBody, "seqs"): _SEQS,
    (wire.NackBody, "lease_ids"): _LEASES,
    (wire.NackBody, "error"): _ERROR,
    (wire.RejectBody, "node"): _HOLDER,
    (wire.RejectBody, "seqs"): _SEQS,
    (wire.RejectBody, "lease_ids"): _LEASES,
    (wire.RejectBody, "error"): _ERROR,
    (wire.ExtendBody, "node"): _HOLDER,
    (wire.ExtendBody, "seqs"): _SEQS,
    (wire.ExtendBody, "lease_ids"): _LEASES,
    (wire_jobs.PurgeBody, "states"): {"minItems": 1},
    (wire_jobs.ReleaseBody, "seqs"): _SEQS,
    (wire_jobs.RedriveBody, "seqs"): {"maxItems": limits.REDRIVE_MAX},
    (wire_jobs.RedriveBody, "to"): _TOPIC,
    (wire_jobs.RedriveBody, "match"): _PREDICATE,
    (feed_wire.WatchBody, "topics"): {
        "minProperties": 1,
        "maxProperties": limits.WATCHED_TOPICS_MAX,
    },
    (wire_producers.StageBody, "topic"): _TOPIC,
    (wire_producers.StageBody, "records"): {
        "minItems": 1,
        "maxItems": limits.RECORDS_PER_WRITE_MAX,
        "description": "As in a write, without `key` and `on_conflict`.",
    },
    (wire_producers.StageBody, "attempt"): _ATTEMPT,
    (wire_producers.StageBody, "chunk"): {"maximum": limits.CHUNKS_PER_EPOCH_MAX - 1},
    (wire_producers.StageBody, "node"): _NODE,
    (wire_producers.CommitBody, "parts"): {"maxItems": limits.CHUNKS_PER_EPOCH_MAX},
    (wire_producers.CommitBody, "content"): {
        "maxLength": wire_producers.CONTENT_BYTES_MAX,
        "description": "A digest of what the epoch holds: a repeat with another one is refused.",
    },
    (wire_producers.PartBody, "attempt"): _ATTEMPT,
    (wire.RouterBody, "source"): _TOPIC,
    (wire.RouterBody, "dest"): _TOPIC,
    (wire.RouterBody, "filter"): _PREDICATE,
}
"""By struct and member. A bound of a text or array that may also be null goes to the former."""

RULES: dict[type[msgspec.Struct], Schema] = {
    TopicConfig: {
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
    wire_records.JobBody: {
        "anyOf": [
            {"properties": {"delay_ms": {"type": "null"}}},
            {"properties": {"not_before": {"type": "null"}}},
        ]
    },
}
"""By struct: what its members must be together."""


def bind(member: dict[str, Any], bound: Schema) -> None:
    """Add a bound to the schema of a member; where it may be null, to its other form."""
    forms = [form for form in member.get("anyOf", ()) if form != {"type": "null"}]
    target = forms[0] if forms and "anyOf" not in bound else member
    target.update(bound)
