"""What is wrong with JSON that was sent, in the terms of JSON.

Owns: the words for a value of the wrong type, and for text that is not JSON. Must not know: bodies,
HTTP, who decoded what. Only a refusal comes here, so it may take its time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

_PLACE = re.compile(r"(.*?)(?: - at `(?P<place>.*)`)?", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_OUT_OF_BOUNDS = re.compile(r"Expected `([^`]*)` (<=|>=|<|>) (\S+)")
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_NOT_AMONG = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")

_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
    "uuid": "a UUID",
    "datetime": "a date and time as in RFC 3339",
    "date": "a date as in RFC 3339",
    "time": "a time as in RFC 3339",
    "duration": "a duration as in ISO 8601",
    "decimal": "a decimal number",
    "bytes": "a string in base64",
}
_GIVEN = {**_KINDS, "bool": "a boolean", "float": "a fractional number"}
_BOUNDS = {"<=": "of at most", ">=": "of at least", "<": "less than", ">": "greater than"}

_PAIRS = "\\ud800 to \\udfff come in pairs only, high before low"
_HIGH_ALONE = re.compile(rb"\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])", re.IGNORECASE)
_TAIL_BYTES = 16
_BYTE = re.compile(r"\(byte (\d+)\)")


def type_problem(error: msgspec.ValidationError, kind: Any, whole: str) -> str:
    """Say what a value should have been, and what it was.

    Args:
        error: As the decoder raised it.
        kind: The type that was asked for; it knows which values are allowed.
        whole: What to call the value as a whole, such as `the body`.

    Returns:
        Such as "`priority` must be an integer or null, got a string".
    """
    match = _PLACE.fullmatch(str(error))
    assert match is not None
    problem, place = match[1], match["place"] or "$"
    path, of_keys, within = place.partition("` in `")
    if of_keys:
        path = within
    name = _name_of(path)
    shown = f"`{name}`" if name else whole
    if of_keys:
        shown = f"each name in {shown}"
    if found := _WRONG_TYPE.fullmatch(problem):
        return f"{shown} must be {_one_of(found[1])}, got {_GIVEN.get(found[2], found[2])}"
    if found := _OUT_OF_BOUNDS.fullmatch(problem):
        return (
            f"{shown} must be {_one_of(found[1])} {_BOUNDS[found[2]]} {found[3].removesuffix('.0')}"
        )
    if found := _MISSING.fullmatch(problem):
        return f"`{name}.{found[1]}` is missing" if name else f"`{found[1]}` is missing"
    if found := _UNKNOWN.fullmatch(problem):
        return f"`{name}.{found[1]}` is unknown" if name else f"`{found[1]}` is unknown"
    if found := _NOT_AMONG.fullmatch(problem):
        allowed = [*dict.fromkeys(_allowed(_type_of(kind), [*_STEP.finditer(path)]))]
        listed = ", ".join(
            f"'{value}'" if isinstance(value, str) else str(value) for value in allowed
        )
        choice = (
            f"must be {'one of ' if len(allowed) > 1 else ''}{listed}" if allowed else "is invalid"
        )
        return f"{shown} {choice}, got {found[1]}"
    return f"{shown}: {problem}"


def text_problem(error: msgspec.DecodeError, text: bytes, start: int = 0) -> str:
    """Say why text is not JSON.

    Args:
        error: As the decoder raised it.
        text: What was decoded.
        start: Where it begins in what was sent, in bytes.
    """
    problem = _BYTE.sub(lambda found: f"(byte {start + int(found[1])})", str(error))
    if "surrogate" in problem:
        place = _BYTE.search(problem)
        return f"invalid surrogate {place[0] if place else ''}: {_PAIRS}"
    if "truncated" in problem:
        # The decoder says so, too, when a lone surrogate is among the last few bytes.
        for lone in _HIGH_ALONE.finditer(text, max(len(text) - _TAIL_BYTES, 0)):
            before = text[: lone.start()]
            is_escape = (len(before) - len(before.rstrip(b"\\"))) % 2 == 0
            if is_escape and b'"' in text[lone.end() :]:
                return f"invalid surrogate (byte {start + lone.end()}): {_PAIRS}"
        return "it ends too early"
    return problem.removeprefix("JSON is malformed: ")


def _name_of(path: str) -> str:
    """`$.records[0].tag` as records[0].tag; the value of any name in an object as `.*`."""
    return path.removeprefix("$").removeprefix(".").replace("[...]", ".*")


def _one_of(kinds: str) -> str:
    """The alternatives that the decoder names, the last of them after an "or"."""
    names = [_KINDS.get(kind, kind) for kind in kinds.split(" | ")]
    if {"int", "float"} <= {*kinds.split(" | ")}:
        names.remove(_KINDS["int"])
    return _alternatives(names)


def _alternatives(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _type_of(kind: Any) -> inspect.Type | None:
    try:
        return inspect.type_info(kind)
    except Exception:
        # A message is not worth failing over a type that the decoder itself was given a hook for.
        return None


def _allowed(kind: inspect.Type | None, steps: list[re.Match[str]]) -> Iterator[Any]:
    """The values that a type allows at a place, where it lists them."""
    if isinstance(kind, inspect.Metadata):
        yield from _allowed(kind.type, steps)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _allowed(one, steps)
    elif isinstance(kind, inspect.LiteralType) and not steps:
        yield from kind.values
    elif isinstance(kind, inspect.EnumType) and not steps:
        yield from (member.value for member in kind.cls)
    elif isinstance(kind, inspect.CollectionType) and steps:
        yield from _allowed(kind.item_type, steps[1:])
    elif isinstance(kind, inspect.DictType) and steps:
        yield from _allowed(kind.value_type, steps[1:])
    elif isinstance(kind, inspect.StructType) and steps:
        name = steps[0][1]
        if name == kind.tag_field and len(steps) == 1:
            yield kind.tag
        for field in kind.fields:
            if field.encode_name == name:
                yield from _allowed(field.type, steps[1:])
