"""The bodies of reading records and deleting them.

Must not know: how a command is decided, how replies look, routes, sockets.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logqueue.api.bodies.reader import U32, BodyReader
from logqueue.api.bodies.unknown_members import Ignore
from logqueue.core import commands as cmd
from logqueue.core.reading import ReadPage, read
from logqueue.core.topic import Topic
from logqueue.errors import InvalidRequest
from logqueue.events import block as blocks
from logqueue.model import limits
from logqueue.model.config import U64
from logqueue.model.tag_predicate import Predicate


class DiffBody(msgspec.Struct):
    """`POST /v0/topics/:topic/diff`."""

    from_seq: U64 = 0
    limit: U32 = 0
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: U32 = 0
    max_batch_bytes: U64 = 0


class DeleteBody(msgspec.Struct):
    """`POST /v0/topics/:topic/delete`."""

    before_seq: U64 | None = None
    match: Any = None


read_diff_body = BodyReader(DiffBody).read
_read_delete_body = BodyReader(DeleteBody).read


def delete_command(topic: str, body: bytes, ignore: Ignore | None = None) -> cmd.DeleteRecords:
    """The command of a delete body.

    Raises:
        InvalidRequest: No selector, or a predicate of no known form.
    """
    decoded: DeleteBody = _read_delete_body(body, ignore)
    match = None if decoded.match is None else Predicate.parse(decoded.match)
    if decoded.before_seq is None and match is None:
        raise InvalidRequest("name what to delete: `before_seq`, `match`, or both")
    return cmd.DeleteRecords(topic, decoded.before_seq, match)


def read_page(topic: Topic, body: DiffBody, now: int) -> ReadPage:
    """What a diff body asks for."""
    nodes = [body.node] if isinstance(body.node, str) else body.node or []
    return read(
        topic,
        body.from_seq,
        now,
        records_max=min(body.limit or limits.DIFF_RECORDS_DEFAULT, limits.DIFF_RECORDS_MAX),
        bytes_max=min(body.max_batch_bytes or limits.DIFF_BYTES_DEFAULT, limits.DIFF_BYTES_MAX),
        nodes={blocks.write_string(node) for node in nodes},
    )
