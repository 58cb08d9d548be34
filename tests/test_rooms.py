"""Who imports whom: every package is a room, arrows between rooms run one way.

The table lists rooms from the ground up; a room may import itself and
what it names ("server.*": all rooms in there). Each module
belongs to the longest room that is a prefix of its name, and every module has one. The few tests
at the end hold the rules themselves to account: they must bite.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator

import wal
from tests.house import ROOT, Source, broken, is_stdlib, sources, within

PRODUCT = ("wal", "logqueue")
SPARK = "pipeline.engines.spark"

MODEL = ("errors", "json_problems", "model")
CORE = (*MODEL, "firing_times", "events", "core", "core.decide", "core.apply")
API = (*CORE, "shapes", "api", "api.bodies", "api.operations", "api.openapi")
CLIENT = ("errors", "shapes", "client")
WORKER = (*CLIENT, "json_problems", "worker")
SEGMENTS = ("wal", "model", "events", "segments")

ROOMS: dict[str, tuple[str, ...]] = {
    "wal": (),
    "wal.testing": ("wal",),
    "errors": (),
    "json_problems": (),
    "extras": (),
    "version": (),
    "model": MODEL,
    "model.clock": (),
    "firing_times": ("errors",),
    "events": (*MODEL, "events"),
    "core": CORE,
    "core.decide": CORE,
    "core.apply": CORE,
    "shapes": (),
    "segments": SEGMENTS,
    "replica": (*SEGMENTS, "extras", "replica"),
    "api": (*CORE, "api"),
    "api.bodies": (*CORE, "api.bodies"),
    "api.operations": ("version", *CORE, "shapes", "api", "api.bodies", "api.operations"),
    "api.openapi": ("version", *API),
    "server.auth": MODEL,
    "server.client_memory": ("errors",),
    "server.hosts": ("errors",),
    "server.settings": ("errors", "server.auth", "server.hosts"),
    "server.storage": (*CORE, *SEGMENTS, "model.clock", "replica"),
    "server.engine": (
        *API,
        "model.clock",
        "wal",
        "server.auth",
        "server.client_memory",
        "server.storage",
    ),
    "server.backup": ("errors", "server.storage"),
    "server.log_level": (),
    "server.long_bodies": (),
    "server.process_memory": (),
    "server.recent": (),
    "server.service": (
        "errors",
        "server.auth",
        "server.backup",
        "server.client_memory",
        "server.engine",
        "server.log_level",
        "server.long_bodies",
        "server.process_memory",
        "server.settings",
        "server.storage",
    ),
    "server.activity": (),
    "server.metrics": (
        "version",
        *CORE,
        "server.activity",
        "server.recent",
        "server.service",
    ),
    "server.limits_in_use": ("server.service", "server.settings"),
    "server.health": (
        "shapes",
        "server.limits_in_use",
        "server.metrics",
        "server.recent",
        "server.service",
    ),
    "server.shared_totals": ("server.engine", "server.metrics", "server.scrape"),
    "server.status": ("version", *CORE, "segments", "shapes", "server.*"),
    "server.stats": (
        "version",
        *API,
        "model.clock",
        "server.activity",
        "server.auth",
        "server.engine",
        "server.health",
        "server.metrics",
        "server.process_memory",
        "server.recent",
        "server.service",
    ),
    "server.scrape": (*API, "server.auth", "server.engine", "server.metrics"),
    "server.http": (
        *API,
        "server.auth",
        "server.client_memory",
        "server.hosts",
        "server.metrics",
        "server.recent",
        "server.service",
        "server.settings",
        "server.engine",
    ),
    "vendored": (),
    "server.pages": ("vendored",),
    "server.handlers": ("version", *API, *SEGMENTS, "model.clock", "server.*"),
    "server.sqs": (*API, "server.*"),
    "server.app": (*API, "model.clock", "server.*"),
    "server.handing_over": (),
    "server.standby": (
        *CORE,
        "model.clock",
        "wal",
        "replica",
        "server.engine",
        "server.service",
        "server.storage",
    ),
    "server.runtime": (*CORE, *SEGMENTS, "model.clock", "replica", "server.*"),
    "server.serve": ("version", "extras", *API, "wal", "model.clock", "replica", "server.*"),
    "client": ("version", *CLIENT),
    "worker": (*WORKER, "extras"),
    "testing": (*API, *WORKER, "extras", "replica", "server.*", "wal", "wal.testing"),
    "pipeline": (*CLIENT, *SEGMENTS, "extras", "replica", "vendored"),
    "pipeline.rows": (*CLIENT, *SEGMENTS, "extras", "pipeline", "replica"),
    "pipeline.audit": (*CLIENT, *SEGMENTS, "pipeline"),
    "pipeline.stores": (
        *CLIENT,
        *SEGMENTS,
        "extras",
        "pipeline",
        "pipeline.audit",
        "pipeline.rows",
        "replica",
    ),
    "pipeline.engines": ("pipeline",),
    "pipeline.engines.duckdb": (
        *CLIENT,
        *SEGMENTS,
        "extras",
        "pipeline",
        "pipeline.audit",
        "pipeline.engines",
        "pipeline.rows",
        "pipeline.stores",
        "replica",
    ),
    "pipeline.engines.spark": (
        *CLIENT,
        *SEGMENTS,
        "extras",
        "pipeline",
        "pipeline.audit",
        "pipeline.rows",
        "pipeline.stores",
        "replica",
    ),
    "spark": ("pipeline", "pipeline.engines.spark"),
    "cli": (
        "",
        "version",
        *CORE,
        *WORKER,
        "cli",
        "extras",
        "pipeline.*",
        "replica",
        "server.*",
        "wal",
    ),
    "demo": ("", *WORKER, "extras", "pipeline.*", "spark"),
    "__main__": ("cli",),
    "": ("version", *WORKER),
}
"""What each room may import of our own code. "" is the package itself: the names it offers."""

# fmt: off
PURE_STDLIB = frozenset((
    "__future__", "abc", "array", "base64", "binascii", "bisect", "collections", "contextlib",
    "copy", "dataclasses", "enum", "functools", "hashlib", "heapq", "itertools", "json", "math",
    "operator", "re", "string", "struct", "types", "typing", "zlib",
))
# fmt: on
"""What a module without clock, files, sockets, threads and chance may import. Add only such."""

PURE = ("model", "events", "core", "core.decide", "core.apply", "shapes")
FOREIGN = {
    "model": {"msgspec"},
    "events": {"msgspec"},
    "core": {"msgspec", "sortedcontainers"},
    "shapes": {"msgspec"},
    "firing_times": {"cronsim"},
    "errors": set(),
    "json_problems": {"msgspec"},
    "extras": set(),
    "client": {"httpx", "httpx_sse", "msgspec"},
    "segments": {"msgspec"},
    "server.http": {"h2", "websockets"},
    "server.pages": {"sse_starlette", "starlette"},
    "wal": set(),
}
"""Packages of others that a room may import, where that is bounded."""

IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})


def short(module: str) -> str:
    """The name of a module as the table has it."""
    return module.removeprefix("logqueue").removeprefix(".") if is_ours(module) else module


def is_ours(name: str) -> bool:
    """Whether a dotted name belongs to the package logqueue."""
    return within(name, "logqueue")


def room_of(name: str) -> str:
    """The longest room that a dotted name of ours is in."""
    name = short(name)
    while name and name not in ROOMS:
        name = name.rpartition(".")[0]
    return name


def arrows(files: Iterable[Source]) -> Iterator[tuple[Source, int, str, str]]:
    """Every import from one room of ours into another: source, line, name, room."""
    for source in files:
        for found in source.facts.imports:
            if is_ours(found.name) or within(found.name, "wal"):
                room = room_of(found.name)
                if room != room_of(source.module):
                    yield source, found.line, found.name, room


def against(files: Iterable[Source]) -> Iterator[str]:
    """Imports that the table does not allow."""
    for source, line, name, room in arrows(files):
        allowed = ROOMS[room_of(source.module)]
        if not any(
            room == may or within(room, may.removesuffix(".*"))
            for may in allowed
            if room == may or may.endswith(".*")
        ):
            yield f"{source.path}:{line}: imports {name}"


def foreign(files: Iterable[Source]) -> Iterator[str]:
    """Imports of the standard library and of other packages that a room does not allow."""
    for source in files:
        room = room_of(source.module)
        ground = room.partition(".")[0]
        for found in source.facts.imports:
            first = found.name.partition(".")[0]
            if first in PRODUCT:
                continue
            if is_stdlib(found.name):
                is_allowed = room not in PURE or first in PURE_STDLIB
            else:
                is_allowed = ground not in FOREIGN or first in FOREIGN[ground]
            if not is_allowed:
                yield f"{source.path}:{found.line}: imports {found.name}"


def test_imports_run_one_way() -> None:
    broken("a room imports what the table ROOMS says", against(sources(*PRODUCT)))


def test_rooms_of_the_table_exist() -> None:
    modules = {short(source.module) for source in sources(*PRODUCT)}
    assert [room for room in ROOMS if room not in modules] == []


def test_no_rooms_import_each_other_in_circles() -> None:
    reached: dict[str, set[str]] = {room: set() for room in ROOMS}
    for source, _, _, room in arrows(sources(*PRODUCT)):
        reached[room_of(source.module)].add(room)
    for through in ROOMS:
        for room, others in reached.items():
            if through in others:
                reached[room] = others | reached[through]
    circles = {
        tuple(sorted(other for other in others if room in reached[other]))
        for room, others in reached.items()
        if room in others
    }
    assert circles == set()


def test_rooms_import_of_others_what_they_may() -> None:
    broken("pure rooms stay pure, and few packages are needed", foreign(sources(*PRODUCT)))


def test_only_public_names_of_the_log_are_imported() -> None:
    broken(
        "logqueue imports from wal what `wal/__init__.py` offers, and the disk of simulations",
        (
            f"{source.path}:{found.line}: imports {found.name}"
            for source in sources("logqueue")
            for found in source.facts.imports
            if within(found.name, "wal")
            and found.name.removeprefix("wal.") not in ("wal", *wal.__all__)
            and not within(found.name, "wal.testing")
        ),
    )


def test_pure_rooms_do_no_io() -> None:
    broken(
        "pure rooms do no I/O",
        (
            f"{source.path}:{line}: calls {name}()"
            for room in PURE
            for source in sources(f"logqueue/{room}")
            for line, name in source.facts.calls
            if name in IMPURE_CALLS
        ),
    )


def test_only_the_spark_engine_imports_pyspark() -> None:
    """What describes a pipeline is for any engine: not even a function imports pyspark there."""
    spark = ("pyspark", "py4j", "logqueue.spark", f"logqueue.{SPARK}")
    broken(
        f"only logqueue.{SPARK} imports pyspark; outside of it, import the engine in a function",
        (
            f"{source.path}:{found.line}: imports {found.name}"
            for source in sources(*PRODUCT)
            if not source.is_in(f"logqueue.{SPARK}") and not source.is_in("logqueue.spark")
            for found in source.facts.imports
            if any(within(found.name, name) for name in spark)
            and (found.at_top or source.is_in("logqueue.pipeline"))
        ),
    )
    ask = "import logqueue, sys; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", ask], cwd=ROOT, check=True)


def test_the_pipeline_imports_pyarrow_when_it_is_used() -> None:
    broken(
        "outside rows and audits, what describes a pipeline imports pyarrow in functions only",
        (
            f"{source.path}:{found.line}: imports {found.name}"
            for source in sources("logqueue/pipeline")
            if room_of(source.module) == "pipeline"
            for found in source.facts.imports
            if found.at_top and within(found.name, "pyarrow")
        ),
    )
    ask = "import logqueue.pipeline, logqueue.spark, sys; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", ask], cwd=ROOT, check=True)


def in_circles(every: Iterable[Source]) -> list[str]:
    """Modules that need themselves, through others. Imports in functions, and those for types only,
    count, too: what a module needs later it needs."""
    known = {source.module: source for source in every}
    left = {
        module: {
            name if (name := found.name) in known else name.rpartition(".")[0]
            for found in source.facts.imports
        }
        - {module}
        for module, source in known.items()
    }
    while True:
        free = {module for module, others in left.items() if not others & left.keys()}
        needed = set().union(*left.values())
        free |= left.keys() - needed
        if not free:
            return sorted(left)
        for module in free:
            del left[module]


def test_no_modules_import_each_other_in_circles() -> None:
    assert in_circles(sources(*PRODUCT)) == []


def test_the_rules_bite() -> None:
    text = '''"""A module."""
import time
from . import topics
from ..server import http
from logqueue import errors
def run():
    import asyncio
'''
    sample = Source("logqueue/core/sample.py", text)
    assert list(against([sample])) == ["logqueue/core/sample.py:4: imports logqueue.server.http"]
    assert sorted(foreign([sample])) == [
        "logqueue/core/sample.py:2: imports time",
        "logqueue/core/sample.py:7: imports asyncio",
    ]
    one = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from logqueue.core import two\n"
    circle = {
        "one": one,
        "two": "def later():\n    from logqueue.core.three import name\n",
        "three": "from . import one\n",
        "four": "from . import one\n",
    }
    found = in_circles(Source(f"logqueue/core/{name}.py", text) for name, text in circle.items())
    assert found == [f"logqueue.core.{name}" for name in ("one", "three", "two")]
