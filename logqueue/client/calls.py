"""What a call is, before it is made.

Owns: the request as plain values, the reading of replies into shapes, the pages of a list. Must not
know: httpx, whether the caller blocks or awaits, retries. Everything here is shared by both
clients.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from decimal import Decimal
from threading import Lock
from types import MappingProxyType
from typing import Any, Generic, TypedDict, TypeVar, Unpack, cast
from urllib.parse import quote, urlencode

import msgspec

from logqueue.client.failures import unexpected
from logqueue.errors import InvalidRequest

T = TypeVar("T")
Shape = TypeVar("Shape")

INT_DIGITS_MAX = 4000
"""Longer integers than about this cannot be read without changing a limit of the interpreter."""

_NO_QUERY: Mapping[str, Any] = MappingProxyType({})


def _plain(value: Any) -> Any:
    """What the encoder does not know: the seq in the handle of a job is a number."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def encode(body: Any) -> bytes:
    """JSON bytes.

    Raises:
        TypeError: JSON has no such value.
        ValueError: A number is NaN or infinite. The encoder would write null in its place.
        UnicodeEncodeError: Text has half of a surrogate pair.
    """
    try:
        content = _encode(body)
    except UnicodeEncodeError as error:
        error.reason = "invalid surrogate: JSON cannot hold half of a pair"
        raise
    # Almost every body is through with this look; only one that holds a null is walked over.
    if b"null" in content:
        refuse_non_numbers(body)
    return content


def refuse_non_numbers(value: Any, where: str = "") -> None:
    """Refuse NaN and infinities, wherever they are.

    Args:
        where: How a message calls the place of the value.

    Raises:
        ValueError: There is one; the message says where.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(
                f"{where or 'the value'} is {value}, which JSON cannot hold: send null or a string"
            )
    elif isinstance(value, Mapping):
        for name, one in value.items():
            refuse_non_numbers(one, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple | set | frozenset):
        for number, one in enumerate(value):
            refuse_non_numbers(one, f"{where}[{number}]")
    elif isinstance(value, msgspec.Struct) or is_dataclass(value):
        for name in _fields_of(value):
            inner = f"{where}.{name}" if where else name
            refuse_non_numbers(getattr(value, name, None), inner)


def _fields_of(value: Any) -> Iterable[str]:
    return value.__struct_fields__ if isinstance(value, msgspec.Struct) else vars(value)


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One HTTP request.

    Attributes:
        path: With its query.
        body: Fields of the JSON body, or the body itself; None for none.
        is_repeatable: Whether making it twice is as good as making it once.
        is_signed: The worker's name is added to the body as `node`, unless it has one.
        wait_ms: How long the server may hold the reply on purpose.
        is_probe: The answer as of now is wanted, also when it is a refusal: no second try.
        range: What part of a long reply is wanted, as the Range header says it; None for all.
        names_server: It is about the server that is called, whichever the writer is: a client of
            several refuses it.
        is_endless: It is part of an endless iteration that has started, so it is tried
            again for as long as a broken stream is opened again.
    """

    method: str
    path: str
    body: Mapping[str, Any] | bytes | None = None
    is_repeatable: bool = True
    is_signed: bool = False
    wait_ms: int = 0
    is_probe: bool = False
    names_server: bool = False
    is_endless: bool = False
    accept: str = "application/json"
    range: str | None = None

    def content(self, node: str) -> bytes | None:
        """The body's bytes, signed with this name if it needs one."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        if self.is_signed and "node" not in self.body:
            return encode({"node": node, **self.body})
        return encode(self.body)


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply that says success.

    Attributes:
        is_unsure: An earlier try of the same request got no reply, but may have had its effect.
    """

    status: int
    body: bytes
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """Requests to make in order, and how to read their answers as one result."""

    requests: Sequence[CallRequest]
    read: Callable[[Sequence[Answer]], T]


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list that comes in pages.

    Attributes:
        first: The call for the first page.
        turn: From a page to its items and the call for the next page, None after the last.
    """

    first: Call[Any]
    turn: Callable[[Any], tuple[Iterable[T], Call[Any] | None]]


_learning = Lock()
"""While msgspec learns a class it runs Python: a second thread that comes by then reads a null
pointer."""


def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    known = _decoders.get(kind)
    if known is None:
        with _learning:
            known = _decoders.setdefault(kind, msgspec.json.Decoder(cast(Any, kind)))
    return known


_decoders: dict[Hashable, msgspec.json.Decoder[Any]] = {}


def read_shape(answer: Answer, kind: type[Shape]) -> Shape:
    """An answer's body as a shape.

    Raises:
        UnexpectedReply: The body is something else.
    """
    try:
        return decode(answer.body, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        failure = unexpected(answer.status, answer.body)
        failure.add_note(str(error))
        raise failure from error


def decode(text: bytes | str, kind: type[Shape]) -> Shape:
    """JSON as a shape. Payloads may hold any number: those beyond int and float are a Decimal.

    Raises:
        msgspec.MsgspecError: It is not JSON, or something else.
    """
    try:
        shape: Shape = _decoder(cast(Hashable, kind)).decode(text)
    except msgspec.ValidationError as error:
        # One such number must not make a queue unreadable.
        if "out of range" not in str(error):
            raise
        plain = json.loads(text, parse_int=_whole, parse_float=_fraction)
        return msgspec.convert(plain, kind)
    return shape


def _whole(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= INT_DIGITS_MAX else Decimal(digits)


def _fraction(digits: str) -> float | Decimal:
    number = float(digits)
    return number if math.isfinite(number) else Decimal(digits)


class Endpoint(Generic[Shape]):
    """An operation of the server, as calls name it; all of them are in `endpoints.py`."""

    __slots__ = ("_pieces", "method", "reply")

    def __init__(self, method: str, pattern: str, reply: type[Shape]) -> None:
        """Describe an operation.

        Args:
            pattern: Its path; `*` is replaced by a name.
            reply: The shape of its reply; bytes where it has none.
        """
        self.method = method
        self.reply = reply
        self._pieces = pattern.split("*")

    def path(self, *names: str, **query: Any) -> str:
        """The path: names are escaped, query parameters that are None left out.

        Raises:
            InvalidRequest: A name is empty: no name is, and the path would be another one.
        """
        text, *pieces = self._pieces
        for name, piece in zip(names, pieces, strict=True):
            if not name:
                raise InvalidRequest(
                    "a name must not be empty: give the name of a topic, router or job"
                )
            text += _segment(name) + piece
        asked = {name: _text(value) for name, value in query.items() if value is not None}
        return f"{text}?{urlencode(asked)}" if asked else text


class RequestOptions(TypedDict, total=False):
    """What else a request may have; see `CallRequest`."""

    is_repeatable: bool
    is_signed: bool
    wait_ms: int
    is_probe: bool
    names_server: bool
    is_endless: bool
    accept: str
    range: str | None


def request(
    endpoint: Endpoint[Any],
    *names: str,
    query: Mapping[str, Any] = _NO_QUERY,
    body: Mapping[str, Any] | bytes | None = None,
    **options: Unpack[RequestOptions],
) -> CallRequest:
    """The request of an operation.

    Args:
        names: What its path names, in order.

    Raises:
        InvalidRequest: A name is empty.
    """
    return CallRequest(endpoint.method, endpoint.path(*names, **query), body, **options)


def call(
    endpoint: Endpoint[Shape],
    *names: str,
    query: Mapping[str, Any] = _NO_QUERY,
    body: Mapping[str, Any] | bytes | None = None,
    **options: Unpack[RequestOptions],
) -> Call[Shape]:
    """The call that makes the request of an operation and reads its shape: see `request`."""
    return reading(request(endpoint, *names, query=query, body=body, **options), endpoint.reply)


def reading(request: CallRequest, kind: type[Shape]) -> Call[Shape]:
    """The call that makes one request and reads one shape."""
    return Call((request,), lambda answers: read_shape(answers[0], kind))


def given(**fields: Any) -> dict[str, Any]:
    """The fields that were given: those that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _segment(name: str) -> str:
    if not name.strip("."):
        # A segment of dots would be taken for a step in the path, up to another resource.
        return name.replace(".", "%2E")
    return quote(name, safe=":")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def as_json(value: Any) -> str:
    """A value as JSON text, for messages: what people write in configs and on command lines."""
    return _encode(value).decode()


def describe(method: Callable[..., Any], build: Callable[..., Any], result: str) -> None:
    """Give a method the name, docstring and signature of the function it wraps.

    Args:
        result: How the method's result is written, with `{}` for what a Call or Listing is of.
    """
    signature = inspect.signature(build)
    of = re.search(r"\[(.*)\]", str(signature.return_annotation))
    client = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__ = method.__qualname__ = build.__name__
    method.__doc__ = build.__doc__
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[client, *signature.parameters.values()],
        return_annotation=result.format(of.group(1) if of else signature.return_annotation),
    )
