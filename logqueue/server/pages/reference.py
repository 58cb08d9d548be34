"""The API reference as one HTML page, made from an OpenAPI document.

Owns: how operations and schemas look. Must not know: where the document comes from. The page is
complete in itself: no script, no font, nothing from elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

Node = Mapping[str, Any]

METHODS = ("get", "put", "post", "patch", "delete")

STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5c6570; --line: #dde1e6;
  --page: #fff; --box: #f5f7f9; --link: #0b5cad; --get: #1a6e3c; --write: #8a4b00; --drop: #a3202c }
@media (prefers-color-scheme: dark) { :root { --text: #e3e6ea; --soft: #9aa4b0; --line: #333a42;
  --page: #14171a; --box: #1d2126; --link: #7db8f5; --get: #6fd08f; --write: #f0b35b;
  --drop: #f58b94 } }
* { box-sizing: border-box }
html { scroll-behavior: smooth; scroll-padding-top: 1rem }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; color: var(--text);
  background: var(--page) }
.frame { display: grid; grid-template-columns: 17rem minmax(0, 1fr); max-width: 78rem;
  margin: 0 auto }
nav { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow: auto;
  padding: 1.5rem 1rem; font-size: .875rem }
nav ul { list-style: none; margin: 0 0 .75rem; padding: 0 }
nav summary { font-weight: 600; cursor: pointer; padding: .15rem 0 }
main { padding: 1.5rem 2rem 6rem; min-width: 0 }
a { color: var(--link); text-decoration-thickness: from-font; text-underline-offset: .15em }
nav a, h1 a, h2 a, h3 a { text-decoration: none }
a:hover, a:focus { text-decoration: underline }
h1 { margin: 0 0 .5rem; font-size: 1.75rem }
h2 { margin: 3rem 0 .25rem; padding-top: 1rem; border-top: 1px solid var(--line) }
h3 { margin: 2.25rem 0 .25rem; font-size: 1.1rem }
h4 { margin: 1.1rem 0 .3rem; font-size: .8rem; letter-spacing: .05em; text-transform: uppercase;
  color: var(--soft) }
p { margin: .4rem 0 }
code, pre { font: .875em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
code { background: var(--box); border-radius: 3px; padding: .1em .3em; overflow-wrap: anywhere }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 6px; margin: .3rem 0;
  padding: .75rem; overflow: auto; max-height: 26rem }
.call { display: block; padding: .4rem .6rem; border-left: 4px solid var(--soft);
  background: var(--box); border-radius: 3px; overflow-wrap: anywhere }
.call b { display: inline-block; min-width: 4.2em }
.get { border-color: var(--get) } .get b { color: var(--get) }
.put, .post, .patch { border-color: var(--write) }
.put b, .post b, .patch b { color: var(--write) }
.delete { border-color: var(--drop) } .delete b { color: var(--drop) }
.soft { color: var(--soft) }
.table { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0;
  border-bottom: 1px solid var(--line) }
th { color: var(--soft); font-weight: 500 }
td:first-child { white-space: nowrap }
details > summary { cursor: pointer }
@media (max-width: 52rem) {
  .frame { display: block }
  nav { position: static; max-height: none; border-bottom: 1px solid var(--line) }
  main { padding: 1rem }
  td:first-child { white-space: normal }
}
"""


def render(document: Node) -> str:
    """The page, as HTML."""
    return "".join(_Reference(document).parts())


class _Reference:
    """One document on its way to a page."""

    def __init__(self, document: Node) -> None:
        self._document = document
        self._operations = [
            (path, method, item[method])
            for path, item in document["paths"].items()
            for method in METHODS
            if method in item
        ]

    def parts(self) -> Iterator[str]:
        """The page from top to bottom."""
        info = self._document["info"]
        title = f"{info['title']} {info['version']}"
        yield (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(title)}: API reference</title><style>{STYLE}</style></head><body>"
            '<div class="frame">'
        )
        yield from self._navigation()
        yield f"<main><h1>{escape(title)}</h1>{_prose(info.get('description', ''))}"
        yield from self._keys()
        yield '<p>For machines: <a href="/v0/openapi.json">/v0/openapi.json</a></p>'
        for tag in self._document.get("tags", ()):
            yield f'<h2 id="{_id(tag["name"])}">{escape(tag["name"])}</h2>'
            yield _prose(tag.get("description", ""))
            for path, method, operation in self._tagged(tag["name"]):
                yield from self._operation(path, method, operation)
        yield from self._schemas()
        yield "</main></div></body></html>"

    def _tagged(self, tag: str) -> list[tuple[str, str, Node]]:
        return [found for found in self._operations if tag in found[2].get("tags", ())]

    def _navigation(self) -> Iterator[str]:
        yield '<nav aria-label="Contents">'
        for tag in self._document.get("tags", ()):
            yield f"<details open><summary>{escape(tag['name'])}</summary><ul>"
            for _, _, operation in self._tagged(tag["name"]):
                where = _id(operation["operationId"])
                yield f'<li><a href="#{where}">{escape(operation.get("summary", ""))}</a></li>'
            yield "</ul></details>"
        yield '<a href="#schemas">Schemas</a></nav>'

    def _keys(self) -> Iterator[str]:
        schemes = self._document.get("components", {}).get("securitySchemes", {})
        for scheme in schemes.values():
            if scheme.get("type") == "http":
                yield "<h4>Keys</h4>" + _prose(scheme.get("description", ""))

    def _operation(self, path: str, method: str, operation: Node) -> Iterator[str]:
        where = _id(operation["operationId"])
        title = escape(operation["summary"])
        yield f'<section id="{where}"><h3><a href="#{where}">{title}</a></h3>'
        yield f'<code class="call {method}"><b>{method.upper()}</b> {escape(path)}</code>'
        scopes = sorted(
            {scope for way in operation.get("security", ()) for s in way.values() for scope in s}
        )
        needs = ", ".join(f"<code>{escape(scope)}</code>" for scope in scopes)
        yield f'<p class="soft">Scopes: {needs or "none"}</p>'
        yield _prose(operation.get("description", ""))
        parameters = [self._resolved(given) for given in operation.get("parameters", ())]
        if parameters:
            rows = [
                (
                    f"<code>{escape(each['name'])}</code>",
                    escape(each["in"]) + ("" if each.get("required") else ", optional"),
                    self._type(each.get("schema", {})),
                    _text(each.get("description", "")),
                )
                for each in parameters
            ]
            yield "<h4>Parameters</h4>" + _table(("Name", "In", "Type", ""), rows)
        if "requestBody" in operation:
            yield "<h4>Body</h4>"
            yield from self._content(self._resolved(operation["requestBody"]))
        yield "<h4>Replies</h4>"
        yield from self._replies(operation.get("responses", {}))
        yield "</section>"

    def _replies(self, responses: Node) -> Iterator[str]:
        refusals = []
        for status, given in responses.items():
            reply = self._resolved(given)
            if status.startswith(("1", "2")):
                yield f"<p><code>{escape(status)}</code> "
                yield f"{_text(reply.get('description', ''))}</p>"
                yield from self._content(reply)
            else:
                refusals.append((f"<code>{status}</code>", _text(reply.get("description", ""))))
        if refusals:
            yield "<details><summary>Refusals</summary>"
            yield _table(("Status", "When"), refusals) + "</details>"

    def _content(self, holder: Node) -> Iterator[str]:
        for kind, content in holder.get("content", {}).items():
            yield f'<p class="soft">{escape(kind)}: {self._type(content.get("schema", {}))}</p>'
            examples = [content["example"]] if "example" in content else []
            for named in content.get("examples", {}).values():
                examples.append(self._resolved(named).get("value"))
            for example in examples[:2]:
                text = example if isinstance(example, str) else _json(example)
                yield f'<pre tabindex="0">{escape(text)}</pre>'

    def _schemas(self) -> Iterator[str]:
        yield '<h2 id="schemas">Schemas</h2>'
        for name, schema in self._document.get("components", {}).get("schemas", {}).items():
            yield f'<section id="{_id("schema-" + name)}"><h3>{escape(name)}</h3>'
            yield _prose(schema.get("description", ""))
            properties = schema.get("properties")
            if properties is None:
                yield f"<p>{self._type(schema)}</p>"
            else:
                required = schema.get("required", ())
                rows = [
                    (
                        f"<code>{escape(member)}</code>",
                        self._type(each) + ("" if member in required else ", optional"),
                        _text(each.get("description", "")),
                    )
                    for member, each in properties.items()
                ]
                yield _table(("Member", "Type", ""), rows)
            yield "</section>"

    def _resolved(self, node: Node) -> Node:
        while "$ref" in node:
            found: Any = self._document
            for step in node["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            node = found
        return node

    def _type(self, schema: Node) -> str:
        """A schema in a few words; one with a name is a link."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return f'<a href="#{_id("schema-" + name)}">{escape(name)}</a>'
        for choice in ("anyOf", "oneOf", "allOf"):
            if choice in schema:
                return " or ".join(self._type(each) for each in schema[choice])
        if "enum" in schema:
            return " | ".join(f"<code>{escape(_json(value))}</code>" for value in schema["enum"])
        if "const" in schema:
            return f"<code>{escape(_json(schema['const']))}</code>"
        kind = schema.get("type", "any")
        text = escape(kind if isinstance(kind, str) else " or ".join(kind))
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            text = f"array of {self._type(schema['items'])}"
        if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
            text = f"object of {self._type(schema['additionalProperties'])}"
        bounds = [
            f"{word} {schema[key]}"
            for key, word in (
                ("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"),
                ("minLength", "length from"), ("maxLength", "length to"),
                ("minItems", "items from"), ("maxItems", "items to"),
            )
            if key in schema
        ]  # fmt: skip
        if schema.get("default") is not None:
            bounds.append(f"default {_json(schema['default'])}")
        return text + (
            f' <span class="soft">({escape(", ".join(bounds))})</span>' if bounds else ""
        )


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="table"><table><tr>{head}</tr>{body}</table></div>'


def _text(text: str) -> str:
    """Text with `code` in it."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _prose(text: str) -> str:
    return "".join(f"<p>{_text(part)}</p>" for part in text.split("\n\n") if part.strip())


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _id(name: str) -> str:
    """A name as an anchor."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)
