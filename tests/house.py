"""Reading the project's own source: what the rules in test_house.py are made of.

Owns: which files belong to the project, their syntax trees, what they import, define and say.
Must not know: which rules there are. Nothing here imports the modules it reads.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: `from a import b` is the name a.b, whatever b is."""

    line: int
    name: str
    at_top: bool


@dataclass(frozen=True, slots=True)
class Defined:
    """A function, method or class.

    Attributes:
        line: Where it begins.
        name: Its name; with the names of the classes around it where it is public.
        lines: How many lines its body takes without its docstring.
        has_docstring: Whether it opens with one.
    """

    line: int
    name: str
    lines: int
    has_docstring: bool


@dataclass(frozen=True)
class Facts:
    """What the syntax tree of one file says. Trees of all files would fill a gigabyte.

    Attributes:
        is_told: Whether the module opens with a docstring, or has nothing in it.
        imports: Every import, wherever it stands, with relative names resolved.
        functions: Every function and method, nested ones too.
        classes: Every class, nested ones too.
        public: Functions, classes and methods that others may use.
        constants: Every text and bytes literal that is not a docstring, with its line.
        calls: Every call of a plain name, with its line.
        tables: What `parametrize` is given, with the line of the call.
        reprs: Lines of text with a value in it as Python writes it: `{value!r}`.
    """

    is_told: bool
    imports: list[Import] = field(default_factory=list)
    functions: list[Defined] = field(default_factory=list)
    classes: list[Defined] = field(default_factory=list)
    public: list[Defined] = field(default_factory=list)
    constants: list[tuple[int, str]] = field(default_factory=list)
    calls: list[tuple[int, str]] = field(default_factory=list)
    tables: list[tuple[int, ast.expr]] = field(default_factory=list)
    reprs: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Source:
    """One Python file.

    Attributes:
        path: Relative to the project's root, with forward slashes.
        text: What it holds.
    """

    path: str
    text: str

    @cached_property
    def facts(self) -> Facts:
        """What its syntax tree says, in no order."""
        tree = ast.parse(self.text, self.path)
        facts = Facts(is_told=not tree.body or _docstring(tree) is not None)
        facts.public.extend(_public(tree.body, ""))
        waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
        while waiting:
            node, at_top = waiting.pop()
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # a docstring, of an attribute perhaps
            self._look_at(node, at_top, facts)
            is_lazy = isinstance(node, _Function) or _is_for_types(node)
            for name in node._fields:
                value = getattr(node, name, None)
                for inner in value if isinstance(value, list) else (value,):
                    if isinstance(inner, ast.AST):
                        waiting.append((inner, at_top and not is_lazy))
        return facts

    def _look_at(self, node: ast.AST, at_top: bool, facts: Facts) -> None:
        match node:
            case ast.Constant(value=str(text)):
                facts.constants.append((node.lineno, text))
            case ast.Constant(value=bytes(data)):
                facts.constants.append((node.lineno, data.decode("latin-1")))
            case ast.FormattedValue(conversion=conversion) if conversion == ord("r"):
                facts.reprs.append(node.lineno)
            case ast.Call(func=ast.Name(id=name)):
                facts.calls.append((node.lineno, name))
            case ast.Call(func=ast.Attribute(attr="parametrize")):
                facts.tables.extend((node.lineno, table) for table in node.args[1:2])
            case ast.Import():
                facts.imports.extend(
                    Import(node.lineno, alias.name, at_top) for alias in node.names
                )
            case ast.ImportFrom():
                origin = self._origin(node)
                facts.imports.extend(
                    Import(node.lineno, f"{origin}.{alias.name}", at_top) for alias in node.names
                )
            case ast.ClassDef():
                facts.classes.append(_defined(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                facts.functions.append(_defined(node))

    @property
    def is_package(self) -> bool:
        """Whether this is the __init__ of a package."""
        return self.path.endswith("/__init__.py")

    @property
    def module(self) -> str:
        """The dotted name it is imported by."""
        name = self.path.removesuffix(".py").replace("/", ".")
        return name.removesuffix(".__init__")

    def is_in(self, room: str) -> bool:
        """Whether it is this module or lies inside this package."""
        return within(self.module, room)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            assert node.module is not None
            return node.module
        parts = self.module.split(".")
        package = parts if self.is_package else parts[:-1]
        base = package[: len(package) - (node.level - 1)]
        return ".".join([*base, node.module] if node.module else base)


def _is_for_types(node: ast.AST) -> bool:
    """Whether what is inside is never run: `if TYPE_CHECKING:`."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _docstring(node: ast.AST) -> ast.Expr | None:
    """The statement that is the docstring of a module, class or function."""
    if isinstance(node, ast.Module | _Definition):
        match node.body:
            case [ast.Expr(value=ast.Constant(value=str())) as first, *_]:
                return first
    return None


def _defined(node: _Definition, prefix: str = "") -> Defined:
    body = node.body[1:] if (told := _docstring(node)) else node.body
    end = node.end_lineno
    assert end is not None
    lines = end - body[0].lineno + 1 if body else 0
    return Defined(node.lineno, prefix + node.name, lines, told is not None)


def _public(body: Iterable[ast.stmt], prefix: str) -> Iterator[Defined]:
    for node in body:
        if not isinstance(node, _Definition) or node.name.startswith("_"):
            continue
        if isinstance(node, _Function) and _says_nothing_new(node):
            continue
        yield _defined(node, prefix)
        if isinstance(node, ast.ClassDef):
            yield from _public(node.body, f"{prefix}{node.name}.")


def _says_nothing_new(function: _Function) -> bool:
    """Whether its contract is stated elsewhere: overloads, setters, declared overrides."""
    marks = {ast.unparse(mark).rpartition(".")[2] for mark in function.decorator_list}
    return bool(marks & {"overload", "setter", "deleter", "override"})


def words(name: str) -> list[str]:
    """The words of a name: `HTTPServer_loop` is http, server, loop."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


def within(name: str, room: str) -> bool:
    """Whether a dotted name is this room or lies inside it."""
    return name == room or name.startswith(room + ".")


def is_stdlib(name: str) -> bool:
    """Whether a dotted name belongs to the standard library."""
    return name.partition(".")[0] in sys.stdlib_module_names


@cache
def project_files() -> tuple[str, ...]:
    """Every file that is or would be committed, relative to the root."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return tuple(sorted(_walked_files()))  # an unpacked archive, or no git on this machine
    names = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def _walked_files() -> Iterator[str]:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    ignored = [line.strip("/") for line in lines if line and not line.startswith("#")]
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name != ".git" and not any(fnmatch.fnmatch(name, pattern) for pattern in ignored)
        ]
        for name in names:
            if not any(fnmatch.fnmatch(name, pattern) for pattern in ignored):
                yield (Path(folder) / name).relative_to(ROOT).as_posix()


@cache
def _all_sources() -> tuple[Source, ...]:
    return tuple(
        Source(path, (ROOT / path).read_text(encoding="utf-8"))
        for path in project_files()
        if path.endswith(".py")
    )


def sources(*rooms: str) -> tuple[Source, ...]:
    """The project's Python files below these folders, or all of them; each is parsed once."""
    below = tuple(f"{room}/" for room in rooms) or ("",)
    return tuple(source for source in _all_sources() if source.path.startswith(below))


def broken(rule: str, places: Iterable[str]) -> None:
    """Fail with every place that breaks a rule."""
    found = sorted(places)
    if found:
        pytest.fail(f"{rule}:\n  " + "\n  ".join(found), pytrace=False)


def page(path: str) -> str:
    """A page of documentation; a missing one fails the rule that needs it."""
    file = ROOT / path
    if not file.is_file():
        pytest.fail(f"{path} does not exist; write it: the house checks against it", pytrace=False)
    return file.read_text(encoding="utf-8")


def make_targets() -> set[str]:
    """The targets that the Makefile offers."""
    return set(re.findall(r"^([a-z][a-z-]*):", page("Makefile"), flags=re.MULTILINE))


PAGES = tuple(
    path
    for path in project_files()
    if path == "README.md" or (path.startswith(("docs/", "examples/")) and path.endswith(".md"))
)
"""What people read, but for the changelog."""
