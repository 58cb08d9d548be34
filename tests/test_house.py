"""The rules of the house for code: who imports whom, sizes, names, docstrings.

Each rule is one test that lists every place that breaks it, as path:line and what to do. The few
tests at the end hold the rules themselves to account: they must bite.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest

from tests import house
from tests.house import ROOT, Source, broken, is_stdlib, sources, within

FILE_LINES_MAX = 900
FUNCTION_LINES_MAX = 70
PRODUCT = ("wal", "logqueue")


# -- rooms: who may import whom --------------------------------------------------------------------

PURE_STDLIB = frozenset(
    (
        "__future__",
        "abc",
        "array",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "string",
        "struct",
        "types",
        "typing",
        "zlib",
    )
)
"""What a module without clock, files, sockets, threads and chance may import. Add only such."""

IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})


@dataclass(frozen=True)
class Room:
    """What the modules of one package may import.

    Attributes:
        name: The package or module.
        why: The rule in words.
        may: Decides over each imported dotted name.
    """

    name: str
    why: str
    may: Callable[[str], bool]


def inside(*rooms: str) -> Callable[[str], bool]:
    """Names inside any of these rooms."""
    return lambda name: any(within(name, room) for room in rooms)


def outside(*rooms: str) -> Callable[[str], bool]:
    """Names inside none of these rooms."""
    return lambda name: not inside(*rooms)(name)


def is_ours(name: str) -> bool:
    """Whether a dotted name belongs to this project's packages."""
    return inside(*PRODUCT)(name)


FRAMES = tuple(f"logqueue.core.{name}" for name in ("events", "block", "copy_blocks", "config"))
"""What the frames of a log hold, for those that read it without a server."""

ROOMS = (
    Room(
        "wal",
        "wal imports itself and the standard library only",
        lambda name: within(name, "wal") or is_stdlib(name),
    ),
    Room("logqueue.errors", "errors imports the standard library only", is_stdlib),
    Room("logqueue.model.clock", "clock imports the standard library only", is_stdlib),
    Room("logqueue.extras", "extras imports the standard library only", is_stdlib),
    Room(
        "logqueue.core",
        "core imports itself, errors, msgspec, sortedcontainers and pure standard modules: no "
        "asyncio, clock, files, sockets, threads or chance (see PURE_STDLIB)",
        lambda name: (
            inside("logqueue.core", "logqueue.errors", "msgspec", "sortedcontainers")(name)
            or name.partition(".")[0] in PURE_STDLIB
        ),
    ),
    Room(
        "logqueue.api.bodies.queues",
        "wire knows shapes, not those who send or serve them",
        outside("logqueue.server", "logqueue.client", "logqueue.spark", "logqueue.cli"),
    ),
    *(
        Room(
            f"logqueue.wire_{noun}",
            "as wire",
            outside("logqueue.server", "logqueue.client", "logqueue.spark", "logqueue.cli"),
        )
        for noun in ("records", "jobs")
    ),
    Room(
        "logqueue.shapes",
        "shapes imports itself, msgspec and the standard library only: it describes, others do",
        lambda name: inside("logqueue.shapes", "msgspec")(name) or is_stdlib(name),
    ),
    Room(
        "logqueue.server",
        "the server knows nothing of those who call or start it",
        outside("logqueue.client", "logqueue.spark", "logqueue.cli", "logqueue.demo"),
    ),
    Room(
        "logqueue.client",
        "the client never imports the server",
        outside("logqueue.server", "logqueue.spark", "logqueue.cli", "logqueue.demo"),
    ),
    Room(
        "logqueue.worker",
        "workers know the server by the client only",
        outside("logqueue.server", "logqueue.spark", "logqueue.cli", "logqueue.testing"),
    ),
    Room(
        "logqueue.segments",
        "segments imports itself, wal, msgspec, the standard library, and what frames hold",
        lambda name: (
            inside("logqueue.segments", "wal", *FRAMES, "msgspec")(name) or is_stdlib(name)
        ),
    ),
    Room(
        "logqueue.spark",
        "of our own code, spark imports client, segments, shapes, errors, wal and frames only",
        lambda name: (
            inside(
                "logqueue.spark",
                "logqueue.client",
                "logqueue.segments",
                "logqueue.shapes",
                "logqueue.errors",
                "wal",
                *FRAMES,
            )(name)
            or not is_ours(name)
        ),
    ),
)


def arrows_against(room: Room, files: Iterable[Source]) -> Iterator[str]:
    """Imports that a room does not allow."""
    for source in files:
        if source.is_in(room.name):
            for found in source.facts.imports:
                if not room.may(found.name):
                    yield f"{source.path}:{found.line}: imports {found.name}"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_imports_run_one_way(room: Room) -> None:
    broken(room.why, arrows_against(room, sources(*PRODUCT)))


def test_the_core_does_no_io() -> None:
    broken(
        "core does no I/O",
        (
            f"{source.path}:{line}: calls {name}()"
            for source in sources("logqueue/core")
            for line, name in source.facts.calls
            if name in IMPURE_CALLS
        ),
    )


def test_only_spark_imports_pyspark() -> None:
    broken(
        "importing logqueue never imports pyspark; outside logqueue.spark, import it in a function",
        (
            f"{source.path}:{found.line}: imports {found.name}"
            for source in sources(*PRODUCT)
            if not source.is_in("logqueue.spark")
            for found in source.facts.imports
            if found.at_top and inside("pyspark", "logqueue.spark")(found.name)
        ),
    )
    ask = "import logqueue, sys; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", ask], cwd=ROOT, check=True)


# -- sizes and names -------------------------------------------------------------------------------

BANNED_WORDS = frozenset(
    (
        "manager",
        "managers",
        "helper",
        "helpers",
        "util",
        "utils",
        "utility",
        "utilities",
        "base",
        "common",
        "misc",
    )
)


def test_files_are_short() -> None:
    broken(
        f"a file has at most {FILE_LINES_MAX} lines; split it by noun",
        (
            f"{source.path}: {lines} lines"
            for source in sources()
            if (lines := len(source.text.splitlines())) > FILE_LINES_MAX
        ),
    )


def long_functions(files: Iterable[Source]) -> Iterator[str]:
    """Functions above the bound."""
    for source in files:
        for found in source.facts.functions:
            if found.lines > FUNCTION_LINES_MAX:
                yield f"{source.path}:{found.line}: {found.name} has {found.lines} lines"


def test_functions_are_short() -> None:
    broken(
        f"a function has at most {FUNCTION_LINES_MAX} lines below its docstring",
        long_functions(sources()),
    )


def empty_names(files: Iterable[Source]) -> Iterator[str]:
    """File, folder and class names with a word that says nothing."""
    for source in files:
        for word in house.words(source.path.removesuffix(".py")):
            if word in BANNED_WORDS:
                yield f"{source.path}: {word}"
        for found in source.facts.classes:
            for word in house.words(found.name):
                if word in BANNED_WORDS:
                    yield f"{source.path}:{found.line}: class {found.name}"


def test_names_say_something() -> None:
    broken(
        f"a name says what the thing holds or does, without {', '.join(sorted(BANNED_WORDS))}",
        empty_names(sources()),
    )


def test_test_folders_are_packages() -> None:
    folders = {source.path.rpartition("/")[0] for source in sources("tests", "bench")}
    broken(
        "a folder with tests has an __init__.py, so that equal file names never clash",
        (f"{folder}/" for folder in folders if not (ROOT / folder / "__init__.py").is_file()),
    )


def unordered(source: Source) -> Iterator[int]:
    """Lines of tables for tests that are sets: their order is another one in each process."""
    for line, table in source.facts.tables:
        is_set = isinstance(table, ast.Set | ast.SetComp) or (
            isinstance(table, ast.Call) and ast.unparse(table.func) in ("set", "frozenset")
        )
        if is_set or (isinstance(table, ast.BinOp) and ".keys()" in ast.unparse(table)):
            yield line


def test_tables_for_tests_have_an_order() -> None:
    broken(
        "parametrize takes a list, not a set: all processes of a run must agree; use sorted()",
        (f"{source.path}:{line}" for source in sources("tests") for line in unordered(source)),
    )


# -- words -----------------------------------------------------------------------------------------


def test_messages_quote_as_people_do() -> None:
    """Python changes the kind of quotes with what is inside, and doubles backslashes."""
    broken(
        "a message shows text as quoted(text), or as '{name}' where it is known to be printable",
        (f"{source.path}:{line}" for source in sources(*PRODUCT) for line in source.facts.reprs),
    )


def test_every_module_says_what_it_is() -> None:
    broken(
        "a module opens with a docstring: what it owns and what it must not know",
        (source.path for source in sources() if not source.facts.is_told),
    )


def undocumented(files: Iterable[Source]) -> Iterator[str]:
    """Public definitions without a docstring."""
    for source in files:
        for found in source.facts.public:
            if not found.has_docstring:
                yield f"{source.path}:{found.line}: {found.name}"


def test_everything_public_has_a_docstring() -> None:
    broken(
        "public functions, classes and methods have a docstring (an override may be marked so)",
        undocumented(sources(*PRODUCT)),
    )


# -- the rules bite --------------------------------------------------------------------------------

SAMPLE = (
    '''"""A module."""
import time
from . import topics
from ..server import http
from logqueue import errors
class TaskManager:
    """Manages."""
    def run(self):
        import asyncio
    @property
    def size(self): """How many."""
@pytest.mark.parametrize("n", N.keys() - {1})
def long_one():
    """Is long."""
'''
    + "    pass\n" * (FUNCTION_LINES_MAX + 1)
)


def test_the_rules_bite() -> None:
    sample = Source("logqueue/core/base_helpers.py", SAMPLE)
    (core,) = [room for room in ROOMS if room.name == "logqueue.core"]
    assert sorted(arrows_against(core, [sample])) == [
        "logqueue/core/base_helpers.py:2: imports time",
        "logqueue/core/base_helpers.py:4: imports logqueue.server.http.api",
        "logqueue/core/base_helpers.py:9: imports asyncio",
    ]
    assert len(list(long_functions([sample]))) == 1
    assert len(list(unordered(sample))) == 1
    assert list(empty_names([sample])) == [
        "logqueue/core/base_helpers.py: base",
        "logqueue/core/base_helpers.py: helpers",
        "logqueue/core/base_helpers.py:6: class TaskManager",
    ]
    assert list(undocumented([sample])) == ["logqueue/core/base_helpers.py:8: TaskManager.run"]
