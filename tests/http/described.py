"""The served OpenAPI document, and strict judgement of replies by it.

Owns: validators where unknown members are refused, which the document itself allows. Must not know:
single routes.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from tests.http.expect import Json

PATH = "/v0/openapi.json"


class Judge:
    """Validates against components of a document, unknown members refused."""

    def __init__(self, document: Json) -> None:
        self._schemas = {
            name: {**schema, "additionalProperties": False} if "properties" in schema else schema
            for name, schema in document["components"]["schemas"].items()
        }
        self._validators: dict[str, jsonschema_rs.Draft202012Validator] = {}

    def require(self, component: str, value: Any) -> None:
        """Refuse a value that is not exactly what a component says.

        Raises:
            jsonschema_rs.ValidationError: It is not.
        """
        validator = self._validators.get(component)
        if validator is None:
            schema = {
                "$ref": f"#/components/schemas/{component}",
                "components": {"schemas": self._schemas},
            }
            # It takes milliseconds to make one, and microseconds to use it.
            validator = self._validators[component] = jsonschema_rs.Draft202012Validator(schema)
        validator.validate(value)


def references(value: Any) -> list[str]:
    """Every `$ref` in a document."""
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [ref for member in value.values() for ref in references(member)]
    if isinstance(value, list):
        return [ref for member in value for ref in references(member)]
    return []


def resolved(document: Json, reference: str) -> Any:
    """What a reference points to.

    Raises:
        KeyError: Nothing.
    """
    value: Any = document
    for segment in reference.removeprefix("#/").split("/"):
        value = value[segment]
    return value
