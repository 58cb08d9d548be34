"""Attributes of messages: their rules, their digest, and which of them a receive shows.

Must not know: actions, where attributes are kept.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator, Mapping, Sequence
from hashlib import md5
from struct import pack
from typing import Final

import msgspec

from logqueue.server.sqs.refusals import INVALID_PARAMETER, SqsRefusal

ATTRIBUTES_MAX: Final = 10
TRACE: Final = "AWSTraceHeader"
"""The one system attribute that a message may be sent with."""

_NAME: Final = re.compile(r"[A-Za-z0-9_\-.]{1,256}", re.ASCII)
_TYPE: Final = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_BAD_TEXT: Final = bytes([*range(9), 11, 12, *range(14, 32)])


class Attribute(msgspec.Struct, rename="pascal", omit_defaults=True, frozen=True):
    """One attribute: its type, and a value of it.

    Attributes:
        binary_value: In base64.
    """

    data_type: str
    string_value: str | None = None
    binary_value: str | None = None

    @property
    def content(self) -> bytes:
        """Its value as bytes."""
        if self.binary_value is not None:
            return b64decode(self.binary_value)
        return (self.string_value or "").encode()

    def sizes(self, name: str) -> int:
        """What it adds to the size of a message, in bytes."""
        return len(name) + len(self.data_type.encode()) + len(self.content)


Attributes = Mapping[str, Attribute]


def is_allowed_text(text: str) -> bool:
    """Whether a message may have this text: no control characters but tab and line ends, and no
    noncharacters."""
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded.translate(None, _BAD_TEXT)) != len(encoded):
        return False
    return text.isascii() or not ("\ufffe" in text or "\uffff" in text)


def require_attributes(attributes: Attributes) -> None:
    """Check the attributes of a message.

    Raises:
        SqsRefusal: One of them breaks a rule.
    """
    if len(attributes) > ATTRIBUTES_MAX:
        raise _refusal(
            f"number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_MAX}]"
        )
    for name, attribute in attributes.items():
        _require_name(name)
        problem = _problem(attribute)
        if problem:
            raise _refusal(f"the message attribute '{name}' {problem}")


def require_system_attributes(attributes: Attributes) -> None:
    """Check what a message is sent with beside its own attributes.

    Raises:
        SqsRefusal: It is not a trace header.
    """
    for name, attribute in attributes.items():
        if name != TRACE or attribute.data_type != "String" or _problem(attribute):
            raise _refusal(
                f"a message may have one system attribute, {TRACE}, which must be a String"
            )


def _require_name(name: str) -> None:
    is_reserved = name.lower().startswith(("aws.", "amazon."))
    if not _NAME.fullmatch(name) or name[0] == "." or name[-1] == "." or ".." in name:
        raise _refusal(
            "the name of a message attribute must be 1 to 256 of A-Z a-z 0-9 _ - . and must not "
            "begin or end with a period, or have two in a row"
        )
    if is_reserved:
        raise _refusal("the name of a message attribute must not begin with AWS. or Amazon.")


def _problem(attribute: Attribute) -> str:
    found = _TYPE.fullmatch(attribute.data_type)
    if found is None or len(attribute.data_type) > 256 or not is_allowed_text(attribute.data_type):
        return "must have a type that is String, Number or Binary, or begins with one and a period"
    is_binary = found[1] == "Binary"
    if (attribute.string_value is not None) is is_binary or (
        attribute.binary_value is not None
    ) is not is_binary:
        return "must have one value, of its type"
    if not is_binary:
        text = attribute.string_value or ""
        if not text:
            return "must have a value that is not empty"
        if not is_allowed_text(text):
            return "has characters that messages must not have"
        if found[1] == "Number" and not _NUMBER.fullmatch(text):
            return "must have a number as its value"
        return ""
    try:
        return "" if b64decode(attribute.binary_value or "", validate=True) else "must not be empty"
    except (Error, ValueError):
        return "must have a binary value in base64"


def _refusal(problem: str) -> SqsRefusal:
    return SqsRefusal(INVALID_PARAMETER, problem)


def digest(attributes: Attributes) -> str:
    """The MD5 digest by which clients check attributes."""
    found = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        for text in (name.encode(), attribute.data_type.encode()):
            found.update(pack(">I", len(text)) + text)
        kind = b"\1" if attribute.binary_value is None else b"\2"
        content = attribute.content
        found.update(kind + pack(">I", len(content)) + content)
    return found.hexdigest()


def shown(attributes: Attributes, wanted: Sequence[str]) -> dict[str, Attribute]:
    """Those attributes that a receive asks for, by name, by `prefix.*`, or by `All`."""
    return {name: attributes[name] for name in _names(attributes, wanted)}


def _names(attributes: Attributes, wanted: Sequence[str]) -> Iterator[str]:
    if "All" in wanted or ".*" in wanted:
        yield from attributes
        return
    names = frozenset(wanted)
    prefixes = tuple(name[:-1] for name in wanted if name.endswith(".*"))
    for name in attributes:
        if name in names or (prefixes and name.startswith(prefixes)):
            yield name
