"""What the table of operations says about each.

Must not know: single operations, who reads the table.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from logqueue.api.bodies.unknown_members import Ignore
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
from logqueue.model.scopes import NO_SCOPE, Scope

Schema = Mapping[str, Any]

STORING: tuple[type[LogqueueError], ...] = (StorageFull, StorageReadOnly)
"""How every operation with a command may fail, besides its own refusals; except a stream, whose
reply has begun when its command is executed."""

COPYING: tuple[type[LogqueueError], ...] = (RecordTooLarge, TopicFull, Throttled)
"""How an operation may fail that leaves copies of jobs in another topic: that one has no room."""

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


class Body(Enum):
    """What an operation does with its body."""

    IGNORED = auto()
    REQUIRED = auto()
    """415 without a JSON content type, then 400 when empty."""
    OPTIONAL = auto()
    """An empty body means {}; otherwise as REQUIRED."""
    NOT_EMPTY = auto()
    """400 when empty, whatever the content type; otherwise as REQUIRED."""
    MERGE_PATCH = auto()
    """As REQUIRED, and the content type may also be that of a merge patch."""
    UNCHECKED = auto()
    """Read as it is: the handler checks its content type, and everything else."""


class Kind(Enum):
    """How an operation answers."""

    REPLY = auto()
    DOWNLOAD = auto()
    """Maybe by a reply too long for memory."""
    STREAM = auto()
    """By an endless reply: the key may come as `?token=`, and it is not counted as in progress."""
    EVENTS = auto()
    """By the endless reply of an application; the key comes as a header only."""
    SOCKET = auto()
    """By making a WebSocket of the connection; not counted as in progress."""


class KeyPolicy(Enum):
    """Who asks for a key, on a server that has keys."""

    REQUIRED = auto()
    PROBE = auto()
    """No key, unless probe authentication is on; and the operation answers at any time."""
    HANDLER = auto()
    """The handler itself decides which key is good enough; none may be."""


StepsReader = Callable[[bytes, Ignore], Generator[None, None, Any]]
"""Reads a body in small steps; passes unknown members to its second argument."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of the API. Everything that serves, calls, describes or tests it is made from
    this row.

    Attributes:
        name: The operation id; its handler is registered under it.
        pattern: The path; `*` is a name, or the id of one item of a topic.
        scope: What the key must hold.
        body_policy: What becomes of the body.
        body: The struct of the body, with an example that works in `asks`. Where merge patches are
            taken: of what they are one.
        only: Schema of what the types of `body` cannot say.
        in_steps: Reads large bodies for the handler, as `HttpRequest.document`.
        pipelined: A short command with a short reply: of pipelined requests the later ones are
            executed before the earlier ones are answered.
        command: What the handler submits to the engine; None when it changes nothing. With one,
            the operation may also fail as `STORING` says.
        group: The tag of the operation, one of `GROUPS`.
        doc: The heading of docs/protocol.md that explains it, as in a link. Without one, a section
            is made of this row.
        access: What the table in docs/protocol.md says about the key, if more than `scope`.
        reply: The shape of the reply, with an example.
        other_reply: Another one, which the body can ask for.
        content: Schema and example of replies that have no shape, by media type.
        frames: Shapes of the events of a stream, by event.
        extra: More members of the operation in the OpenAPI document, `x-...`.
        errors: Refusals of this operation alone, in the order of its checks.
        creates: The name in the path must keep the grammar of names.
        serving: Refused while the log is replayed and while the server stops.
    """

    name: str
    method: str
    pattern: str
    scope: Scope = NO_SCOPE
    key: KeyPolicy = KeyPolicy.REQUIRED
    kind: Kind = Kind.REPLY
    body_policy: Body = Body.IGNORED
    body: type[msgspec.Struct] | None = None
    asks: Mapping[str, Any] | None = None
    only: Schema = {}
    in_steps: StepsReader | None = None
    pipelined: bool = False
    command: type[msgspec.Struct] | None = None
    group: str
    summary: str
    text: str = ""
    doc: str = ""
    access: str = ""
    query: tuple[Parameter, ...] = ()
    reply: type[msgspec.Struct] | None = None
    other_reply: type[msgspec.Struct] | None = None
    example: Mapping[str, Any] | None = None
    content: Mapping[str, Schema] = {}
    frames: Mapping[str, type[msgspec.Struct]] = {}
    extra: Mapping[str, Any] = {}
    statuses: tuple[int, ...] = (200,)
    errors: tuple[type[LogqueueError], ...] = ()
    creates: bool = False
    serving: bool = True

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing, so that a standby answers it. Messages of a WebSocket are
        checked one by one."""
        return self.command is None


def flag(name: str, default: bool, text: str) -> Parameter:
    """A boolean parameter."""
    lenient = f"{text} `true`, `1`, `false`, `0`; anything else means the default."
    return Parameter(name, {"type": "boolean", "default": default}, lenient)


PAGING: tuple[Parameter, ...] = (
    Parameter("prefix", TEXT, "Only names with this prefix."),
    Parameter(
        "page_size",
        {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT},
        f"Maximum number of entries, clamped to the range; {PAGE_DEFAULT} if it is not a number.",
    ),
    Parameter("cursor", TEXT, "`next_cursor` of the previous page; opaque."),
)
