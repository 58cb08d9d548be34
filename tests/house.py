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
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


@dataclass(frozen=True)
class Import:
    """One imported name: `from a import b` is the name a.b, whatever b is."""

    line: int
    name: str
    at_top: bool


def _is_for_types(node: ast.AST) -> bool:
    """Whether what is inside is never run: `if TYPE_CHECKING:`."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


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
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text, self.path)

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

    def imports(self) -> Iterator[Import]:
        """Every import, wherever it stands, with relative names resolved."""
        lazy = {
            id(inner)
            for node in ast.walk(self.tree)
            if isinstance(node, Function) or _is_for_types(node)
            for inner in ast.walk(node)
        }
        for node in ast.walk(self.tree):
            at_top = id(node) not in lazy
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(node.lineno, alias.name, at_top)
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                for alias in node.names:
                    yield Import(node.lineno, f"{origin}.{alias.name}", at_top)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            assert node.module is not None
            return node.module
        parts = self.module.split(".")
        package = parts if self.is_package else parts[:-1]
        base = package[: len(package) - (node.level - 1)]
        return ".".join([*base, node.module] if node.module else base)

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def classes(self) -> Iterator[ast.ClassDef]:
        """Every class, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))

    def public_definitions(self) -> Iterator[tuple[str, Definition]]:
        """Functions, classes and methods that others may use, with their dotted names."""
        yield from _public(self.tree.body, "")

    def constants(self) -> Iterator[tuple[int, str]]:
        """Every text and bytes literal that is not a docstring, with its line."""
        docstrings = {
            id(node.value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and id(node) not in docstrings:
                if isinstance(node.value, str):
                    yield node.lineno, node.value
                elif isinstance(node.value, bytes):
                    yield node.lineno, node.value.decode("latin-1")

    def calls(self) -> Iterator[tuple[int, str]]:
        """Every call of a plain name, with its line."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.lineno, node.func.id


def _public(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        if isinstance(node, Function) and _says_nothing_new(node):
            continue
        yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from _public(node.body, f"{prefix}{node.name}.")


def _says_nothing_new(function: Function) -> bool:
    """Whether its contract is stated elsewhere: overloads, setters, declared overrides."""
    marks = {ast.unparse(mark).rpartition(".")[2] for mark in function.decorator_list}
    return bool(marks & {"overload", "setter", "deleter", "override"})


def body_lines(function: Function) -> int:
    """How many lines a function's body takes without its docstring."""
    body = function.body
    if ast.get_docstring(function) is not None:
        body = body[1:]
    if not body:
        return 0
    end = function.end_lineno
    assert end is not None
    return end - body[0].lineno + 1


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
def sources(*rooms: str) -> tuple[Source, ...]:
    """The project's Python files below these folders, or all of them."""
    return tuple(
        Source(path, (ROOT / path).read_text(encoding="utf-8"))
        for path in project_files()
        if path.endswith(".py") and (not rooms or path.startswith(tuple(f"{r}/" for r in rooms)))
    )


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
