"""What one row of the description says. Must not know: single routes, how a document is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from logqueue.api.paging import PAGE_DEFAULT, PAGE_MAX
from logqueue.errors import (
    LogqueueError,
    RecordTooLarge,
    StorageFull,
    StorageReadOnly,
    Throttled,
    TopicFull,
)
from logqueue.model.limits import U32_MAX, U64_MAX

Schema = Mapping[str, Any]

STORING: tuple[type[LogqueueError], ...] = (StorageFull, StorageReadOnly)
"""How a route that changes something may fail, besides its own refusals."""

COPYING: tuple[type[LogqueueError], ...] = (RecordTooLarge, TopicFull, Throttled)
"""How a route may fail that leaves copies of jobs in another topic: that one has no room."""

ANY_JSON_OBJECT: Schema = {"type": "object"}
U32: Schema = {"type": "integer", "minimum": 0, "maximum": U32_MAX}
U64: Schema = {"type": "integer", "minimum": 0, "maximum": U64_MAX}
TEXT: Schema = {"type": "string"}


class Parameter(msgspec.Struct, frozen=True):
    """A query parameter.

    Attributes:
        example: A value that works with the other examples, if the parameter is to be shown.
    """

    name: str
    schema: Schema
    text: str
    required: bool = False
    example: Any = None


class OperationRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about one route. Scopes, body policy and the errors that follow from them are
    known from the route itself.

    Attributes:
        name: The operation id.
        body: The wire struct of the request, with an example that works in `asks`. On a route that
            takes merge patches: of what they are one.
        only: Schema of what the types of `body` cannot say.
        reply: The shape of the reply, with an example.
        content: Schema and example of replies that are no shape, by media type.
        frames: Shapes of the events of a stream, by event.
        extra: More members of the operation, `x-...`.
        errors: Refusals of this route alone, in the order of its checks.
        creates: The name in the path must keep the grammar of names.
        serving: Refused while the log is replayed and while the server stops.
    """

    method: str
    pattern: str
    name: str
    group: str
    summary: str
    text: str = ""
    query: tuple[Parameter, ...] = ()
    body: type[msgspec.Struct] | None = None
    asks: Mapping[str, Any] | None = None
    only: Schema = {}
    reply: type[msgspec.Struct] | None = None
    example: Mapping[str, Any] | None = None
    content: Mapping[str, Schema] = {}
    frames: Mapping[str, type[msgspec.Struct]] = {}
    extra: Mapping[str, Any] = {}
    statuses: tuple[int, ...] = (200,)
    errors: tuple[type[LogqueueError], ...] = ()
    creates: bool = False
    serving: bool = True


def flag(name: str, default: bool, text: str) -> Parameter:
    """A boolean parameter."""
    lenient = f"{text} `true`, `1`, `false`, `0`; anything else means the default."
    return Parameter(name, {"type": "boolean", "default": default}, lenient)


PAGING: tuple[Parameter, ...] = (
    Parameter("prefix", TEXT, "Only names that begin so."),
    Parameter(
        "page_size",
        {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT},
        f"Entries at most; brought into the range, and {PAGE_DEFAULT} if it is no number.",
    ),
    Parameter("cursor", TEXT, "`next_cursor` of the page before; opaque."),
)
