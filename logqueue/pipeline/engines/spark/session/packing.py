"""A zip of our own code for the executors of a cluster.

Owns: its content, and which files executors cannot take code from. Must not know: sessions,
any job.

With our packages go those that the client calls a server with, as they are all Python.

Executors take Python code from .zip, .egg and .py files only. A wheel given to `--py-files` reaches
the driver only.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import wal
from logqueue.pipeline.errors import PipelineError

CARRIED = ("anyio", "certifi", "h11", "httpcore", "httpx", "idna", "sniffio")
"""Packages for calls to a server. Those that are not installed here are not needed here."""

NEEDED = ("msgspec", "numpy", "pyarrow")
"""Compiled packages, which no zip can carry: the executors' Python must have them."""

TAKEN = (".zip", ".egg", ".py")

OURS = Path(__file__).parents[4]
REGISTRATION = OURS / "spark" / "registration"

STAMP = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the zip, so that equal code gives equal bytes."""


@dataclass(frozen=True)
class CodeArchive:
    """A zip that was written.

    Attributes:
        path: Where it is.
        files: How many files are in it.
        bytes: Its size.
    """

    path: Path
    files: int
    bytes: int


def pack(target: Path) -> CodeArchive:
    """Write the zip. An existing file is replaced, once the new one is whole.

    Raises:
        PipelineError: The name does not end in .zip, or the place cannot be written to.
    """
    if target.suffix != ".zip":
        raise PipelineError(f"{target}: executors take code from files that end in .zip")
    held = io.BytesIO()
    files = 0
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        for name, path in sorted(_contents()):
            entry = zipfile.ZipInfo(name, STAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            made.writestr(entry, path.read_bytes())
            files += 1
    draft = target.with_name(f".{target.name}.part")
    try:
        draft.write_bytes(held.getvalue())
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise PipelineError(f"{target} cannot be written: {error.strerror}") from error
    return CodeArchive(target, files, len(held.getvalue()))


def require_usable(paths: Iterable[str]) -> None:
    """Refuse files that executors would not take code from.

    Args:
        paths: As given to `--py-files`, or in `spark.submit.pyFiles`.

    Raises:
        PipelineError: Names the first such file, and says what to give instead.
    """
    for path in paths:
        if path.endswith(".whl"):
            raise PipelineError(
                f"{path} is a wheel, which Spark gives to the driver only, so executors would not "
                "find the code in it: make a zip with `logqueue pipeline pack -o logqueue.zip`"
            )
        if not path.endswith(TAKEN):
            raise PipelineError(f"{path}: executors take code from {', '.join(TAKEN)} files only")


def _contents() -> Iterator[tuple[str, Path]]:
    """Names in the zip and where each file is."""
    for root in (OURS, Path(wal.__path__[0])):
        for path in root.rglob("*.py"):
            if REGISTRATION not in path.parents:
                yield f"{root.name}/{path.relative_to(root).as_posix()}", path
    for path in _registration().glob("pyspark_logqueue*/*.py"):
        yield path.relative_to(_registration()).as_posix(), path
    for name in CARRIED:
        yield from _carried(name)
    # The one module among them that is not a package.
    single = importlib.util.find_spec("typing_extensions")
    if single is not None and single.origin is not None:
        yield "typing_extensions.py", Path(single.origin)


def _carried(name: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(name)
    for root in (spec.submodule_search_locations if spec is not None else None) or ():
        for path in Path(root).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{name}/{path.relative_to(root).as_posix()}", path


def _registration() -> Path:
    """What holds the packages by which Spark finds our formats: the checkout, or site-packages."""
    return REGISTRATION if REGISTRATION.is_dir() else OURS.parent
