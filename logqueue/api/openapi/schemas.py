"""Component schemas from structs.

Owns: names of components, and moving what docstrings say about attributes to the members. Must not
know: routes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from logqueue.api.openapi.bounds import BOUNDS, RULES, bind

REF = "#/components/schemas/"

_ATTRIBUTE = re.compile(r"^    (\w+(?:, \w+)*): (.+(?:\n     +.+)*)\n?", re.MULTILINE)

_NULL = {"type": "null"}

Kind = type[msgspec.Struct]


_NAMES = {
    "TopicOptions": "TopicConfig",
    "BackoffOptions": "RetryBackoff",
    "ClaimRateOptions": "ClaimRate",
}
"""Components keep their names for the code that users generate from them; classes may change."""


def body_name(name: str) -> str:
    """The component of a body; a reply may have a struct of the same name."""
    return _stem(name) + "Body"


def patch_name(name: str) -> str:
    """The component of a merge patch of a body."""
    return _stem(name) + "Patch"


def _stem(name: str) -> str:
    return _NAMES.get(name, name.removesuffix("Body"))


def reply_schemas(kinds: Iterable[Kind]) -> dict[str, Any]:
    """Schemas of replies and frames, and of all that they hold."""
    _, found = msgspec.json.schema_components([*kinds], ref_template=REF + "{name}")
    for described in found.values():
        _explain_members(described)
    return found


def body_schemas(kinds: Iterable[Kind]) -> dict[str, Any]:
    """Schemas of bodies, and of all that they hold, with their bounds."""
    _, found = msgspec.json.schema_components([*kinds], ref_template=REF + "{name}")
    for (kind, member), bound in BOUNDS.items():
        if kind.__name__ in found:
            bind(found[kind.__name__]["properties"][member], bound)
    for kind, rule in RULES.items():
        if kind.__name__ in found:
            found[kind.__name__].update(rule)
    for described in found.values():
        _explain_members(described)
    return {
        body_name(name): {**_renamed(described, body_name), "title": body_name(name)}
        for name, described in found.items()
    }


def patch_schemas(kinds: Iterable[Kind]) -> dict[str, Any]:
    """Schemas of merge patches of bodies. No member is required and each may be null; what members
    must be together holds for what comes of the merge, of which a patch may be a small part."""
    return {
        patch_name(name): {
            "title": patch_name(name),
            "description": f"A merge patch of {name}: null resets a member to its default.",
            "type": "object",
            "properties": {
                member: _or_null(_renamed(schema, patch_name))
                for member, schema in described["properties"].items()
            },
        }
        for name, described in body_schemas(kinds).items()
    }


def _or_null(member: dict[str, Any]) -> dict[str, Any]:
    """A member's schema for a patch, where leaving it out is not the default."""
    form = {key: value for key, value in member.items() if key not in ("default", "description")}
    described = {key: value for key, value in member.items() if key == "description"}
    forms = [one for one in form.get("anyOf", [form]) if one != _NULL]
    return {**described, "anyOf": [*forms, _NULL]}


def _explain_members(described: dict[str, Any]) -> None:
    """Give members the words that the docstring of their struct has about them."""
    members = described.get("properties", {})
    head, _, attributes = inspect.cleandoc(described.get("description", "")).partition(
        "\n\nAttributes:\n"
    )
    for names, text in _ATTRIBUTE.findall(attributes):
        for name in names.split(", "):
            member = members.get(name) or members.get("$" + name)
            if member is not None:
                member.setdefault("description", " ".join(text.split()))
    described["description"] = " ".join(head.split())


def _renamed(described: Any, name: Callable[[str], str]) -> Any:
    """A schema whose references lead to components of other names."""
    if isinstance(described, dict):
        return {
            key: REF + name(value.removeprefix(REF)) if key == "$ref" else _renamed(value, name)
            for key, value in described.items()
        }
    return (
        [_renamed(part, name) for part in described] if isinstance(described, list) else described
    )
