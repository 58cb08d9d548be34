"""The tag predicate of deletes and routers.

Owns: its grammar and its canonical form. Must not know: records, topics.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logqueue.errors import InvalidRequest

_encode = msgspec.json.Encoder().encode

_FORMS = 'a predicate is "tag", "prefix*", ["tag","Eq","value"] or ["tag","Glob","prefix*"]'


class Predicate(msgspec.Struct, frozen=True):
    """Matches tagged records by equality or by prefix; untagged records never match."""

    value: str
    is_prefix: bool

    @classmethod
    def parse(cls, given: Any) -> Predicate:
        """Read a predicate from decoded JSON.

        Raises:
            InvalidRequest: It is none of the four forms.
        """
        if isinstance(given, str):
            return cls(given[:-1], True) if given.endswith("*") else cls(given, False)
        if not (
            isinstance(given, list) and len(given) == 3 and all(isinstance(x, str) for x in given)
        ):
            raise InvalidRequest(_FORMS)
        subject, operator, value = given
        if subject != "tag" or operator not in ("Eq", "Glob"):
            raise InvalidRequest(_FORMS)
        if operator == "Eq":
            return cls(value, False)
        if not value.endswith("*"):
            raise InvalidRequest('a "Glob" value must end in "*"; ' + _FORMS)
        return cls(value[:-1], True)

    def canonical(self) -> list[str]:
        """The 3-tuple form that replies show."""
        if self.is_prefix:
            return ["tag", "Glob", self.value + "*"]
        return ["tag", "Eq", self.value]

    def matches(self, tag: str | None) -> bool:
        """Whether a record with this tag (None when untagged) matches."""
        if tag is None:
            return False
        return tag.startswith(self.value) if self.is_prefix else tag == self.value

    def matches_fragment(self, tag: bytes) -> bool:
        """The same for a tag as a JSON string fragment made by our encoder; b"" when untagged."""
        if not self.value:
            return tag != b"" if self.is_prefix else tag == b'""'
        wanted = _encode(self.value)
        return tag.startswith(wanted[:-1]) if self.is_prefix else tag == wanted
