"""Bytes to a body: the one reader that every JSON body and message passes through.

Owns: checking UTF-8, blanks between tokens, decoding into a struct, ranges of integers, unknown
members. Must not know: single bodies, commands, routes, sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from logqueue.api.bodies.unknown_members import Ignore, is_flat, strict, unknown_members
from logqueue.errors import InvalidRequest
from logqueue.json_problems import text_problem, type_problem
from logqueue.model import limits

U32 = Annotated[int, msgspec.Meta(ge=0, le=limits.U32_MAX)]

T = TypeVar("T")

_BLANKS = b" \t\r\n"
_FULL_NAMES = {"body": "request body"}


class BodyReader:
    """Decodes one kind of body."""

    def __init__(
        self,
        kind: Any,
        *strict_kinds: Any,
        strips_blanks: bool = False,
        is_open: Callable[[Any], object] | None = None,
        what: str = "body",
    ) -> None:
        """Learn a kind of body.

        Args:
            kind: A struct, or a union of tagged structs.
            strict_kinds: Forms of it that forbid unknown members, the most frequent first. Only
                bodies that fit none of them are searched for unknown members. By default, a kind
                without structs inside it has one such form.
            strips_blanks: Take out the blanks between tokens first. Payloads go to the log and to
                readers as they are: without blanks their length is the one that limits count, and
                no line break can reach an event stream.
            is_open: What is true of a body that fits a strict form and may have unknown members all
                the same, inside a struct that allows them.
            what: What messages call it.
        """
        if not strict_kinds and isinstance(kind, type) and is_flat(kind):
            strict_kinds = (strict(kind),)
        self._decoder = msgspec.json.Decoder(kind)
        self._strict = [msgspec.json.Decoder(form) for form in strict_kinds]
        self._kind = kind if isinstance(kind, type) else None
        self._strips_blanks = strips_blanks
        self._is_open = is_open
        self._what = what
        annotations = kind.__annotations__ if isinstance(kind, type) else {}
        self._u64_fields = [
            name for name, hint in annotations.items() if "U64" in str(hint) and name != "seqs"
        ]

    def read(self, body: bytes, ignore: Ignore | None = None) -> Any:
        """Decode a body.

        Args:
            body: The whole body.
            ignore: Called with the unknown members, if there are any.

        Raises:
            InvalidRequest: Not UTF-8, not JSON, a wrong type, or a number out of range.
        """
        if not body.isascii():
            require_utf8(body, self._what)
        if self._strips_blanks and len(body.translate(None, _BLANKS)) != len(body):
            body = self._without_blanks(body)
        decoded = None
        for decoder in self._strict:
            try:
                decoded = decoder.decode(body)
                break
            except msgspec.ValidationError:
                continue
            except (msgspec.DecodeError, RecursionError):
                break
        if decoded is None:
            decoded, is_open = decode(self._decoder, body, self._what), True
        else:
            is_open = self._is_open is not None and bool(self._is_open(decoded))
        if is_open and ignore is not None:
            note_unknown(self._kind or type(decoded), body, ignore)
        for name in self._u64_fields:
            value = getattr(decoded, name)
            if isinstance(value, int) and value > limits.U64_MAX:
                raise InvalidRequest(f"`{name}` must be at most {limits.U64_MAX}")
        return decoded

    def _without_blanks(self, body: bytes) -> bytes:
        try:
            return without_blanks(body)
        except msgspec.DecodeError as error:
            raise not_json(error, body, self._what) from None
        except RecursionError:
            raise InvalidRequest(f"the {self._what} is nested too deeply") from None


def decode(decoder: msgspec.json.Decoder[T], body: bytes, what: str = "body") -> T:
    """Decode a body.

    Raises:
        InvalidRequest: Not UTF-8, not JSON, or a wrong type.
    """
    require_utf8(body, what)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        problem = type_problem(error, decoder.type, f"the {what}")
        raise InvalidRequest(f"invalid {_FULL_NAMES.get(what, what)}: {problem}") from None
    except msgspec.DecodeError as error:
        raise not_json(error, body, what) from None
    except RecursionError:
        raise InvalidRequest(f"the {what} is nested too deeply") from None


def not_json(error: msgspec.DecodeError, text: bytes, what: str = "body") -> InvalidRequest:
    """The refusal of text that is not JSON."""
    return InvalidRequest(f"the {what} is not valid JSON: {text_problem(error, text)}")


def note_unknown(kind: type[msgspec.Struct], body: bytes, ignore: Ignore) -> None:
    """Tell which members of a decoded body its type does not know, if there are any."""
    names = unknown_members(kind, body)
    if names:
        ignore(names)


def require_utf8(body: bytes, what: str = "body") -> None:
    """Refuse bytes that are not UTF-8 text.

    Raises:
        InvalidRequest: They are not.
    """
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"the {what} is not valid UTF-8 (byte {error.start})") from None


def without_blanks(text: bytes) -> bytes:
    """JSON in UTF-8 without the blanks between its tokens.

    Raises:
        msgspec.DecodeError: Not JSON, found out only where there are blanks.
        RecursionError: Nested too deeply.
    """
    if len(text.translate(None, _BLANKS)) != len(text):
        return msgspec.json.format(text, indent=-1)
    return text
