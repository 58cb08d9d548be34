"""Nothing in the product is there for tests alone, or unused.

Owns: the search for names that are defined and never used. A name counts as used where the product,
the bench, the tools, an example or a page names it outside its own definition. What others call by
name is in CALLED_FROM_OUTSIDE. Methods are matched by name alone, whatever their class.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from tests.house import PAGES, Source, broken, page, sources

USERS = ("wal", "logqueue", "bench", "tools", "examples")
PRODUCT = ("wal", "logqueue")
EXEMPT = ("wal/testing/", "logqueue/testing/", "logqueue/client/endpoints.py")
"""Rooms that are there for tests, ours and those of users; a generated list of all operations."""

FOR_USERS = ("logqueue/client/", "logqueue/worker/")
"""Rooms whose names users call: a page that names one is a use."""

# fmt: off
CALLED_FROM_OUTSIDE = frozenset((
    "connection_lost", "connection_made", "data_received", "eof_received", "resume_writing",
    "capture_signals", "handle_exit",
    "_listen_for_disconnect", "_listen_for_exit_signal", "_stream_response",
    "getDefaultReadLimit", "initialOffset", "latestOffset", "partitions",
    "prepareForTriggerAvailableNow",
    "pushFilters", "streamReader", "streamWriter",
    "scanner", "to_reader", "find_spec",
))
# fmt: on
"""Names that asyncio, uvicorn, sse-starlette, Spark, DuckDB and imports call."""


_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Named:
    """What one file defines and uses.

    Attributes:
        defined: Functions, classes and constants at the top, and methods as `Class.method`, with
            their line and how often their own definition says their name.
        loaded: Names that are read, as variables.
        attributes: Names that are read behind a dot.
        imported: Dotted names of imports.
        texts: Literals that could be names.
    """

    defined: dict[str, tuple[int, int]] = field(default_factory=dict)
    loaded: Counter[str] = field(default_factory=Counter)
    attributes: Counter[str] = field(default_factory=Counter)
    imported: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)


def named(source: Source) -> Named:
    """What a file defines and uses."""
    tree = ast.parse(source.text, source.path)
    found = Named(imported={one.name for one in source.facts.imports})
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                found.loaded[name] += 1
            case ast.Attribute(attr=name, ctx=ast.Load()):
                found.attributes[name] += 1
            case ast.keyword(arg=str(name)):
                found.attributes[name] += 1
            case ast.MatchClass(kwd_attrs=names):
                found.attributes.update(names)
            case ast.Constant(value=str(text)) if text.isidentifier():
                found.texts.add(text)
    for statement in tree.body:
        for name, part in _definitions(statement):
            last = name.rpartition(".")[2]
            if last.startswith("__"):
                continue
            found.defined[name] = (part.lineno, sum(_reads(node, name) for node in ast.walk(part)))
    return found


def _reads(node: ast.AST, name: str) -> bool:
    """Whether a node reads a variable of this name, or the member of `Class.member`."""
    match node:
        case ast.Name(id=read, ctx=ast.Load()):
            return read == name
        case ast.Attribute(attr=read, ctx=ast.Load()):
            return "." in name and read == name.rpartition(".")[2]
    return False


def _is_registered(function: _Function) -> bool:
    """Whether a decorator with arguments puts the function where others find it."""
    return any(isinstance(mark, ast.Call) for mark in function.decorator_list)


def _definitions(statement: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            if not _is_registered(statement):
                yield name, statement
        case ast.ClassDef(name=name):
            yield name, statement
            for inner in statement.body:
                if isinstance(inner, _Function) and not _is_registered(inner):
                    yield f"{name}.{inner.name}", inner
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name, statement


def unused(files: Iterable[Source], pages: Iterable[str]) -> Iterator[str]:
    """Definitions that nothing but tests uses."""
    known = {source: named(source) for source in files}
    told = set(re.findall(r"\w+", " ".join(pages)))
    texts = set(chain.from_iterable(one.texts for one in known.values()))
    importers: dict[str, list[Named]] = defaultdict(list)
    attributes: Counter[str] = Counter()
    offered: dict[str, set[str]] = defaultdict(set)
    for source, one in known.items():
        attributes.update(one.attributes)
        for name in one.imported:
            importers[name].append(one)
            offered[name].add(source.module)
    for source, one in known.items():
        if not source.path.startswith(("wal/", "logqueue/")) or source.path.startswith(EXEMPT):
            continue
        is_public = source.path.startswith(FOR_USERS)
        homes = {source.module, *offered[f"{source.module}.*"]}
        for name, (line, own) in one.defined.items():
            last = name.rpartition(".")[2]
            if last in CALLED_FROM_OUTSIDE or (is_public and last in told):
                continue
            if "." in name:
                is_used = attributes[last] > own
            else:
                is_used = (
                    one.loaded[name] > own
                    or last in texts
                    or any(f"{home}.{name}" in importers for home in homes)
                    or any(user.attributes[name] for home in homes for user in importers[home])
                )
            if not is_used:
                yield f"{source.path}:{line}: {name}"


def test_everything_is_used() -> None:
    broken(
        "what only tests use belongs to tests, and what nothing uses goes",
        unused(sources(*USERS), map(page, PAGES)),
    )


def test_no_exception_is_left_behind() -> None:
    names = {name.rpartition(".")[2] for one in sources(*PRODUCT) for name in named(one).defined}
    assert names >= CALLED_FROM_OUTSIDE


SAMPLE = """
LIMIT = 5
UNUSED = 6

def used():
    return LIMIT

def unused():
    return unused

def looked_up():
    pass

class Kind:
    def used(self):
        return self.again()

    def again(self):
        return self.recursive

    def recursive(self):
        return self.recursive()

    def recalled(self):
        recalled = self.recalled()
        return recalled

    def told(self):
        pass
"""
USER = """
from wal.sample import used

used(Kind().used(), "looked_up")
"""


def test_the_rule_bites() -> None:
    files = [Source("wal/sample.py", SAMPLE), Source("bench/user.py", USER)]
    found = {place.rpartition(" ")[2] for place in unused(files, ["`told()` is for users"])}
    assert found == {"UNUSED", "unused", "Kind", "Kind.recalled", "Kind.told"}
