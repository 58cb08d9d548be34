"""What the jobs of the demo are about: which files there are, and how one file is measured.

Owns: the list of source files of the running interpreter, the truncated copies that can never be
parsed, and the measuring. Must not know: queues, servers, processes.
"""

from __future__ import annotations

import ast
import os
import sysconfig
import time
import warnings
from pathlib import Path

import msgspec

TRUNCATED_FROM = ("argparse.py", "json/decoder.py", "threading.py", "typing.py")
BROKEN_SHARE_MAX = 8
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
SKIPPED_DIRECTORIES = frozenset({"__pycache__", "site-packages", "dist-packages"})


class JobFeed(msgspec.Struct, frozen=True):
    """What a job carries: which file to measure, and its name in reports."""

    path: str
    name: str


class Measured(msgspec.Struct, frozen=True):
    """What one file came to."""

    lines: int
    functions: int
    classes: int
    seconds: float


def measure(path: str) -> Measured:
    """Parse one file and count what is in it; raises whatever the parser thinks of the file."""
    began = time.perf_counter()
    source = Path(path).read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old test files hold invalid escapes by intent
        tree = ast.parse(source, filename=path)
    functions, classes = _count_definitions(tree)
    lines = source.count(b"\n") + (not source.endswith(b"\n") and source != b"")
    return Measured(lines, functions, classes, time.perf_counter() - began)


def _count_definitions(tree: ast.Module) -> tuple[int, int]:
    """Functions and classes at any depth. Only statements are visited: no expression holds one."""
    functions = classes = 0
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        kind = type(node)
        if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            functions += 1
        elif kind is ast.ClassDef:
            classes += 1
        for block in BLOCKS:
            pending.extend(getattr(node, block, ()))
    return functions, classes


def standard_library() -> list[JobFeed]:
    """Every Python source file of the running interpreter's standard library, by name."""
    root = sysconfig.get_paths()["stdlib"]
    found = []
    for directory, below, files in os.walk(root):
        below[:] = [name for name in below if name not in SKIPPED_DIRECTORIES]
        for file in files:
            if file.endswith(".py"):
                path = os.path.join(directory, file)
                found.append(JobFeed(path, os.path.relpath(path, root).replace(os.sep, "/")))
    return sorted(found, key=lambda source: source.name)


def sample(sources: list[JobFeed], files_max: int) -> list[JobFeed]:
    """At most files_max of them: a few of the deliberately broken, the rest evenly spread."""
    if files_max >= len(sources):
        return sources
    broken = [source for source in sources if _broken_by_intent(source.name)]
    chosen = set(broken[: files_max // BROKEN_SHARE_MAX])
    others = [source for source in sources if source not in chosen]
    wanted = files_max - len(chosen)
    chosen.update(others[index * len(others) // wanted] for index in range(wanted))
    return sorted(chosen, key=lambda source: source.name)


def truncated_copies(sources: list[JobFeed], into: Path) -> list[JobFeed]:
    """Copies of real files, cut in the middle of a function's head: no parser can take them."""
    into.mkdir()
    copies = []
    for source in sources:
        if source.name not in TRUNCATED_FROM:
            continue
        content = Path(source.path).read_bytes()
        head = content.find(b"\ndef ", len(content) // 2)
        if head < 0:
            head = content.find(b"    def ", len(content) // 2)
        opening = content.find(b"(", head)
        assert head >= 0 and opening >= 0, f"{source.name} has no function to cut"
        copy = into / source.name.replace("/", "_")
        copy.write_bytes(content[: opening + 1])
        copies.append(JobFeed(str(copy), f"truncated/{copy.name}"))
    return copies


def _broken_by_intent(name: str) -> bool:
    return name.startswith(("test/tokenizedata/bad", "lib2to3/tests/data/"))
