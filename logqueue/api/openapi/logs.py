"""Rows of the logs themselves: their segments, and seqs by time."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.openapi.row import PAGING, TEXT, U64, OperationRow, Parameter
from logqueue.errors import (
    RangeNotSatisfiable,
    SegmentNotFound,
    StorageReadOnly,
    TopicNotFound,
)

SEGMENTS = "/v0/log/segments"

_LOG_ID = "0f8d2a9c5b7e41d3a6c4e2f190b3d587"

ROWS = [
    OperationRow(
        method="GET",
        pattern="/v0/topics/*/seq_at",
        name="seq_at",
        group="records",
        summary="Where the records from a time on begin",
        text="Of those that the topic still has. Where the server's clock was set back, the first "
        "one in the order of seqs; some behind it are then from before.",
        query=(
            Parameter("ts", U64, "ms since the Unix epoch.", required=True, example=1795211102560),
        ),
        reply=shapes.SeqAt,
        example={
            "topic": "transcode",
            "log_id": f"{_LOG_ID}-1",
            "ts": 1795211102560,
            "seq": 1,
            "previous_seq": 0,
            "earliest_seq": 1,
            "head_seq": 2,
            "performance": {"server_total_ms": 0.11},
        },
        errors=(TopicNotFound,),
    ),
    OperationRow(
        method="GET",
        pattern=SEGMENTS,
        name="list_segments",
        group="logs",
        summary="The segments of a log",
        text="Sealed ones, those in the archive, and the active one; oldest first. Before the "
        "reply all of it is synced. A key must not be limited to name prefixes.",
        query=(
            Parameter(
                "log",
                {"enum": ["jobs", "leases"], "default": "jobs"},
                "`jobs`: records and what ends jobs. `leases`: who held which job.",
            ),
            Parameter(
                "topic",
                TEXT,
                "Names, comma separated: tell only of these, and leave out segments that have "
                "nothing to do with them.",
            ),
            Parameter(
                "since",
                {"type": "integer", "minimum": 0, "maximum": 10**19 - 1},
                "Only segments with this number or a higher one.",
            ),
            *PAGING[1:],
        ),
        reply=shapes.SegmentPage,
        example={
            "log": "jobs",
            "log_id": _LOG_ID,
            "order": 4,
            "segments": [
                {
                    "id": "jobs-1",
                    "sealed": False,
                    "archived": False,
                    "version": 1,
                    "log": "jobs",
                    "log_id": _LOG_ID,
                    "identity": _LOG_ID,
                    "segment": 1,
                    "first_frame": 1,
                    "last_frame": 2,
                    "bytes": 4352,
                    "crc32": 2930457817,
                    "first_order": 1,
                    "last_order": 2,
                    "first_at": 1795211102551,
                    "last_at": 1795211102560,
                    "topics": [
                        {
                            "topic": 1,
                            "name": "transcode",
                            "log_id": f"{_LOG_ID}-1",
                            "ranges": [[1, 2]],
                            "rows": 2,
                            "bytes": 58,
                            "first_ts": 1795211102560,
                            "last_ts": 1795211102560,
                        }
                    ],
                    "learned": [
                        {
                            "topic": 1,
                            "name": "transcode",
                            "is_queue": True,
                            "cap_floor": 0,
                            "ttl_floor": 0,
                        }
                    ],
                    "routers": [],
                    "borrowed": [],
                    "staged": [],
                }
            ],
            "performance": {"server_total_ms": 2.31},
        },
        errors=(StorageReadOnly,),
    ),
    OperationRow(
        method="GET",
        pattern=SEGMENTS + "/*",
        name="get_segment",
        group="logs",
        summary="The bytes of a segment",
        text="As docs/wal-format.md describes them; of one that still grows, up to where it is "
        "durable. `Range` (one range) and, for sealed ones, `If-Range` with their `ETag` work as "
        "ever. A key must not be limited to name prefixes.",
        content={
            "application/octet-stream": {
                "schema": {"type": "string", "contentMediaType": "application/octet-stream"}
            }
        },
        statuses=(200, 206),
        errors=(SegmentNotFound, RangeNotSatisfiable, StorageReadOnly),
    ),
]
