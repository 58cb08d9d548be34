"""Members of a body that its type does not know: which were sent, and how a reply names them.

Owns: comparing JSON with the type it was decoded as. Must not know: single bodies, HTTP. Bodies
are examined only where a strict decoder found something, or where they are rare, so that a request
without unknown members costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import inspect

NAMES_MAX = 16
NAME_CHARS_MAX = 64
EXAMINED_BYTES_MAX = 1 << 20
EXAMINED_MAX = 2000
"""How many elements of one array or object are examined, and how many bytes of them."""

Ignore = Callable[[Sequence[str]], None]
"""Takes the names of members that a body had and the server ignores."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_type_of = cache(inspect.type_info)


def strict(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A struct like this one that refuses unknown members, but not those of structs within it."""
    return msgspec.defstruct(kind.__name__, (), bases=(kind,), forbid_unknown_fields=True)


def is_flat(kind: type[msgspec.Struct]) -> bool:
    """Whether no member of a struct is a struct, or holds one."""
    struct = _type_of(kind)
    assert isinstance(struct, inspect.StructType)
    return not any(True for field in struct.fields for _ in _structs(field.type))


def unknown_members(kind: type[msgspec.Struct], body: bytes) -> list[str]:
    """The members of a body that its type does not have, each once, `NAMES_MAX` at most.

    Args:
        kind: What the body was decoded as; structs within it are examined, too.
        body: JSON that was decoded as this kind without an error.

    Returns:
        Paths such as `nosuch`, `config.nosuch`, `records[].nosuch`, `topics.*.nosuch`.
    """
    struct = _type_of(kind)
    assert isinstance(struct, inspect.StructType)
    found: dict[str, None] = {}
    for path in _of_struct(struct, body, ""):
        found[path] = None
        if len(found) == NAMES_MAX:
            break
    return [*found]


def header_text(names: Sequence[str]) -> bytes:
    """The names as the value of a header: whatever they hold, it is ASCII and of bounded length."""
    clipped = [quote(name[:NAME_CHARS_MAX], safe="[]*$") for name in islice(names, NAMES_MAX)]
    return ", ".join(clipped).encode("ascii")


def _structs(kind: inspect.Type) -> Iterator[inspect.StructType]:
    """The structs that a value of a type is, or holds."""
    if isinstance(kind, inspect.StructType):
        yield kind
    elif isinstance(kind, inspect.CollectionType):
        yield from _structs(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        yield from _structs(kind.value_type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _structs(one)


def _of_struct(kind: inspect.StructType, text: bytes, where: str) -> Iterator[str]:
    types = {field.encode_name: field.type for field in kind.fields}
    for name, raw in _members.decode(text).items():
        if name in types:
            yield from _of_value(types[name], bytes(raw), where + name)
        elif name != kind.tag_field:
            yield where + name


def _of_value(kind: inspect.Type, text: bytes, where: str) -> Iterator[str]:
    if not any(True for _ in _structs(kind)):
        return
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _of_value(one, text, where)
    elif isinstance(kind, inspect.StructType) and text.startswith(b"{"):
        yield from _of_struct(kind, text, where + ".")
    elif isinstance(kind, inspect.CollectionType) and text.startswith(b"["):
        for raw in _first(_elements.decode(text)):
            yield from _of_value(kind.item_type, raw, where + "[]")
    elif isinstance(kind, inspect.DictType) and text.startswith(b"{"):
        for raw in _first(_members.decode(text).values()):
            yield from _of_value(kind.value_type, raw, where + ".*")


def _first(values: Any) -> Iterator[bytes]:
    """As many values as may be examined."""
    left = EXAMINED_BYTES_MAX
    for raw in islice(values, EXAMINED_MAX):
        text = bytes(raw)
        left -= len(text)
        if left < 0:
            return
        yield text
