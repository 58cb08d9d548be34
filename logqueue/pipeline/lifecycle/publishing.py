"""Tables and reports published as versions: whole, at once, by one process at a time.

Owns: the layout of a directory of tables, its manifests, how files become a version, and when old
versions are deleted. Must not know: what the tables say, which engine writes them.

    to/_manifest/0000000007.json           names the files of version 7; writing it publishes them
    to/_versions/0000000007-1f0c9a2b/...   the files, such as jobs/date=2026-01-31/x.parquet
    to/_staging/1f0c9a2b/...               files of a run that has not published yet
    to/_current -> _versions/0000000007-1f0c9a2b
    to/jobs -> _current/jobs               one for each name in the version

Our readers go by the newest manifest. Anything else that reads `to/jobs` in a file system passes
the link `_current`, which is replaced by one rename: it sees one whole version of all tables. An
object store has no links: read what the manifest names (`table_files`).

A manifest is created unless there is one of its number, so a run that was overtaken by another
publishes nothing. Every file is looked at by the process that publishes it: executors may have
written it elsewhere. Days that a run has not touched are linked into the new version (an object
store keeps them where they are). Old versions stay for an hour, for readers that began before.

Before there were versions, the tables were in `to/jobs`, `to/attempts` and `to/_range.json`; such a
directory is read as its version 0.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.checking import require_files, unwritable
from logqueue.pipeline.storage.directory_tree import make_directory, sync_directory
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.temporary import temporary_folder
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    import pyarrow as pa

VERSION: Final = 1
"""Of manifests."""
KEPT_MS: Final = 3600 * 1000
"""How long a version stays after the next one was published."""
MANIFESTS: Final = "_manifest/"
VERSIONS: Final = "_versions/"
STAGING: Final = "_staging/"
CURRENT: Final = "_current"
LEGACY_RANGE: Final = "_range.json"


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a version.

    Attributes:
        path: Below the directory; of a file that is staged, where it is now.
        name: Below the version, such as `jobs/date=2026-01-31/x.parquet`.
        rows: In it; -1 when that is not known.
    """

    path: str
    name: str
    rows: int
    bytes: int

    @property
    def table(self) -> str:
        """The table it belongs to: the first part of its name."""
        return self.name.partition("/")[0]

    @property
    def day(self) -> date | None:
        """The day of its rows; None when it is not of one day."""
        folder = self.name.split("/")[-2] if "/" in self.name else ""
        return date.fromisoformat(folder[5:]) if folder.startswith("date=") else None


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A version.

    Attributes:
        version: Its number; 0 for a directory from before there were versions.
        run: The run that published it.
        tables: Tables in it, also those without a file.
        facts: What the run says about it, such as its range of history.
    """

    v: int = VERSION
    version: int
    run: str
    tables: list[str] = []
    facts: dict[str, Any] = {}
    files: list[TableFile]

    def of(self, table: str) -> list[TableFile]:
        """The files of one table."""
        return [file for file in self.files if file.table == table]

    def folder(self) -> str:
        """Where its files are below the directory of tables, if all of them are in one place."""
        return f"{VERSIONS}{self.version:010d}-{self.run}" if self.version else ""


_read_version = msgspec.json.Decoder(Published).decode


# -- reading --------------------------------------------------------------------------------------


def published(tree: FileTree) -> Published | None:
    """The newest version of a directory of tables; None when nothing was published.

    Raises:
        PipelineError: A manifest cannot be read, or was written by a later version.
    """
    # A manifest may be deleted between the listing and the reading; then there is a newer one.
    while numbers := _numbers(tree):
        name = _manifest_name(numbers[-1])
        try:
            return _decoded(tree, name)
        except FileNotFoundError:
            if _numbers(tree)[-1:] == numbers[-1:]:
                raise PipelineError(f"{tree.path(name)} cannot be read") from None
    return _legacy(tree)


def table_files(to: str, table: str) -> list[str]:
    """The Parquet files of a table as paths or URLs, for any reader of Parquet.

    Args:
        to: The directory or URL that a lifecycle run has written to.
        table: `jobs` or `attempts`.

    Raises:
        PipelineError: Nothing was published there.
    """
    tree, found = require_published(to)
    return [tree.path(file.path) for file in found.of(table)]


def require_published(to: str) -> tuple[FileTree, Published]:
    """The newest version at a place, and the place.

    Raises:
        PipelineError: Nothing was published there.
    """
    tree = open_tree(to)
    found = published(tree)
    if found is None:
        raise PipelineError(
            f"{tree.url} holds no finished tables of jobs; run `logqueue pipeline lifecycle` first"
        )
    return tree, found


def _numbers(tree: FileTree) -> list[int]:
    names = (file.name[len(MANIFESTS) :] for file in tree.files(MANIFESTS))
    return sorted(int(name[:10]) for name in names if re.fullmatch(r"\d{10}\.json", name))


def _manifest_name(number: int) -> str:
    return f"{MANIFESTS}{number:010d}.json"


def _decoded(tree: FileTree, name: str) -> Published:
    content = tree.read(name)
    try:
        version = msgspec.json.decode(content)["v"]
        if isinstance(version, int) and version > VERSION:
            raise PipelineError(
                f"{tree.path(name)} was written by a later version: use a newer logqueue"
            )
        return _read_version(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, KeyError) as error:
        raise PipelineError(
            f"{tree.path(name)} does not read ({error}); remove {tree.url} and run again"
        ) from error


def _legacy(tree: FileTree) -> Published | None:
    """What was written before there were versions."""
    try:
        facts = msgspec.json.decode(tree.read(LEGACY_RANGE), type=dict[str, Any])
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PipelineError(
            f"{tree.path(LEGACY_RANGE)} does not read ({error}); remove the directory and run again"
        ) from error
    tables = ["jobs", "attempts"]
    files = [
        TableFile(path=file.name, name=file.name, rows=-1, bytes=file.bytes)
        for table in tables
        for file in tree.files(f"{table}/")
        if file.name.endswith(".parquet")
    ]
    return Published(version=0, run="", tables=tables, facts=facts, files=files)


# -- staging: in tasks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Staging:
    """Where tasks of a run write files. Picklable; opens what it needs where it is used.

    Attributes:
        tree: The directory of tables.
        run: Of the run; part of the names of its files.
    """

    tree: FileTree
    run: str

    @contextmanager
    def drafts(self) -> Iterator[str]:
        """A directory of this machine to write files in, for `take`.

        Raises:
            PipelineError: It cannot be made here.
        """
        if self.tree.directory is None:
            with temporary_folder() as folder:
                yield folder
            return
        # An attempt that lost against another of the same task writes to a place of its own.
        folder = self.tree.path(f"{STAGING}{self.run}/drafts-{uuid.uuid4().hex[:12]}")
        try:
            make_directory(folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def take(self, draft: str, name: str, rows: int = -1) -> TableFile:
        """Stage a finished file of `drafts`.

        Args:
            name: Below the version.
            rows: In it, where it is a table.

        Raises:
            PipelineError: It cannot be put there.
        """
        own = f"{self.run}/{uuid.uuid4().hex[:12]}"
        if self.tree.directory is None:
            # In an object store, where nothing can be moved, it stays there.
            path = f"{VERSIONS}{own}/{name}"
        else:
            path = f"{STAGING}{own}/{name.rpartition('/')[2]}"
        size = os.stat(draft).st_size
        self.tree.add(draft, path)
        return TableFile(path=path, name=name, rows=rows, bytes=size)

    def put(self, name: str, fill: Callable[[str], None], rows: int = -1) -> TableFile:
        """Let a function write a file at a path of this machine, and stage it.

        Args:
            name: Below the version.
            rows: In it, where it is a table.

        Raises:
            PipelineError: It cannot be written here.
        """
        with self.drafts() as folder:
            draft = os.path.join(folder, name.rpartition("/")[2])
            try:
                fill(draft)
            except OSError as error:
                raise unwritable(self.tree.path(name), error) from error
            return self.take(draft, name, rows)

    def write(self, table: str, day: date, rows: pa.Table, part: str = "part-00000") -> TableFile:
        """Stage rows of one day of a table as one Parquet file.

        Args:
            part: Begins the name of the file; must differ between the files of a day.
        """
        import pyarrow.parquet as pq

        def fill(path: str) -> None:
            pq.write_table(rows, path, compression="zstd", store_schema=False)

        return self.put(self.file_name(table, day, part), fill, rows.num_rows)

    def file_name(self, table: str, day: date, part: str) -> str:
        """The name of a file below its version; no other version has a file of that name, so a
        reader that has listed the files of one version never opens those of another."""
        return f"{table}/date={day.isoformat()}/{part}-{self.run}.parquet"


# -- publishing: on the driver --------------------------------------------------------------------


class Target:
    """A directory of tables that this process alone writes to; see `opened_target`.

    Attributes:
        tree: Its files.
        before: The version that is there; None for none.
        staging: Where tasks write to.
    """

    def __init__(self, tree: FileTree) -> None:
        self.tree = tree
        self.before = published(tree)
        self.staging = Staging(tree, uuid.uuid4().hex[:8])

    def publish(
        self,
        files: Iterable[TableFile],
        *,
        tables: Sequence[str] = (),
        keep: Iterable[TableFile] = (),
        facts: dict[str, Any] | None = None,
    ) -> Published:
        """Make staged files, and some of the version before, the new version.

        Args:
            files: As `staging` gave them.
            tables: Tables that are there even if they have no file.
            keep: Files of `before` that are in this version, too.
            facts: About the version.

        Raises:
            PipelineError: A file is not where this process looks for it or not whole, or another
                run has published meanwhile. Readers see the version before then.
        """
        staged, kept = [*files], [*keep]
        require_files(self.tree, [*staged, *kept])
        version = Published(
            version=1 if self.before is None else self.before.version + 1,
            run=self.staging.run,
            tables=[*tables],
            facts=facts or {},
            files=[],
        )
        if self.tree.directory is not None:
            placed = _placed(self.tree.directory, version, staged, kept)
        else:
            placed = [*staged, *kept]
        placed.sort(key=lambda file: file.name)
        version = msgspec.structs.replace(version, files=placed)
        content = msgspec.json.format(msgspec.json.encode(version), indent=1) + b"\n"
        if not self.tree.create(_manifest_name(version.version), content):
            raise PipelineError(
                f"another run has published to {self.tree.url} meanwhile, so this one changed "
                "nothing; run it again"
            )
        self.before = version
        _show(self.tree, version)
        return version

    def require_before(self) -> Published:
        """The version that is there."""
        assert self.before is not None, "nothing was published"
        return self.before

    def clean_up(self) -> None:
        """Delete staged files that were not published, and versions that are old."""
        if self.tree.directory is not None:
            shutil.rmtree(self.tree.path(STAGING), ignore_errors=True)
        _collect(self.tree)


@contextmanager
def opened_target(to: str | FileTree) -> Iterator[Target]:
    """A directory of tables to publish in, locked; what an interrupted run left is tidied up.

    Args:
        to: The directory or URL; made if missing.

    Raises:
        PipelineError: Another process writes there, or it cannot be written.
    """
    tree = open_tree(to) if isinstance(to, str) else to
    with tree.lock("publish"):
        target = Target(tree)
        if tree.directory is not None:
            shutil.rmtree(tree.path(STAGING), ignore_errors=True)
        if target.before is not None and target.before.version:
            _show(tree, target.before)
        yield target
        target.clean_up()


@contextmanager
def published_together(to: str | FileTree) -> Iterator[Workspace]:
    """Files that appear at a place all at once, when the context ends without an error.

    Files of the version before stay unless one of the same name was written, or one below the same
    directory: a table is one file or a directory of them. In an object store,
    which cannot show several objects at once, they also get their own names at the place, one after
    the other; the manifest names one whole version there.

    Args:
        to: The directory or URL; made if missing.

    Raises:
        PipelineError: Another process writes there, or a file cannot be written.
    """
    with opened_target(to) as target:
        folder = f"{STAGING if target.tree.directory else VERSIONS}{target.staging.run}/files"
        space = Workspace(target.tree.below(folder), target.tree)
        yield space
        files = [
            TableFile(path=f"{folder}/{file.name}", name=file.name, rows=-1, bytes=file.bytes)
            for file in space.tree.files()
        ]
        written = {file.table for file in files}
        before = target.before
        target.publish(
            files,
            tables=before.tables if before is not None else (),
            keep=[file for file in (before.files if before else ()) if file.table not in written],
            facts=before.facts if before is not None else None,
        )
        if target.tree.directory is None:
            for file in files:
                target.tree.replace(file.name, target.tree.read(file.path))
            shown = {file.name for file in before.files} if before is not None else set()
            target.tree.remove(shown - {file.name for file in target.require_before().files})


@dataclass(frozen=True)
class Workspace:
    """Where files of a run are written before they are published together.

    Attributes:
        tree: To write in.
        place: Where they will be.
    """

    tree: FileTree
    place: FileTree

    def published_path(self, path: str) -> str:
        """Where a file of the workspace will be."""
        return self.place.path(path.removeprefix(self.tree.path("")))


def _placed(
    directory: str, version: Published, staged: Sequence[TableFile], kept: Sequence[TableFile]
) -> list[TableFile]:
    """The directory of a version made of staged files and of links to those that stay."""
    root = os.path.join(directory, version.folder())
    placed = []
    try:
        for table in version.tables:
            make_directory(os.path.join(root, table))
        for file in (*staged, *kept):
            here, path = os.path.join(directory, file.path), os.path.join(root, file.name)
            make_directory(os.path.dirname(path))
            if file.path.startswith(STAGING):
                os.replace(here, path)
            else:
                _linked(here, path)
            placed.append(msgspec.structs.replace(file, path=f"{version.folder()}/{file.name}"))
        for folder, _, _ in os.walk(root):
            sync_directory(folder)
    except OSError as error:
        raise unwritable(root, error) from error
    return placed


def _linked(source: str, target: str) -> None:
    """The same file under a second name, or a copy where there are no such links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())


def _show(tree: FileTree, version: Published) -> None:
    """Let what reads the directory without a manifest see this version."""
    if tree.directory is None:
        return
    link = tree.path(CURRENT)
    try:
        if not os.path.islink(link) or os.readlink(link) != version.folder():
            _replace_link(link, version.folder())
        names = sorted(os.listdir(link))
        for name in {*os.listdir(tree.directory)} - {*names}:
            path = tree.path(name)
            if os.path.islink(path) and os.readlink(path) == f"{CURRENT}/{name}":
                os.unlink(path)
        for name in names:
            shown, points_to = tree.path(name), f"{CURRENT}/{name}"
            if not os.path.islink(shown) or os.readlink(shown) != points_to:
                _replace_link(shown, points_to)
        sync_directory(tree.directory)
    except OSError as error:
        raise PipelineError(
            f"{link} cannot be linked ({error.strerror}): tables need a file system with symbolic "
            "links, or the URL of an object store"
        ) from error


def _replace_link(path: str, points_to: str) -> None:
    """A link in place of whatever is there, by one rename."""
    draft = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    draft = os.path.join(os.path.dirname(draft), f".{os.path.basename(draft)}")
    os.symlink(points_to, draft)
    if os.path.isdir(path) and not os.path.islink(path):
        # A directory from before there were versions.
        if not _exchanged(draft, path):
            os.rename(path, f"{draft}.old")
            os.rename(draft, path)
            draft = f"{draft}.old"
        shutil.rmtree(draft)
    else:
        os.replace(draft, path)


def _exchanged(one: str, other: str) -> bool:
    """Whether two names were exchanged at once; only Linux can, and not in all file systems."""
    import ctypes

    at_cwd, exchange = -100, 2
    with suppress(AttributeError):
        call = ctypes.CDLL(None).renameat2
        done: int = call(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange)
        return done == 0
    return False


def _collect(tree: FileTree) -> None:
    """Delete versions that were superseded long enough ago, and files of none."""
    written = {
        int(file.name[len(MANIFESTS) :][:10]): file.modified_ms
        for file in tree.files(MANIFESTS)
        if re.fullmatch(r"\d{10}\.json", file.name[len(MANIFESTS) :])
    }
    if not written:
        return
    # By the clock of the place: that of its newest manifest.
    numbers = sorted(written)
    now_ms = max(written.values())
    gone = [number for number, later in pairwise(numbers) if written[later] < now_ms - KEPT_MS]
    stay = []
    for number in numbers:
        if number not in gone:
            with suppress(FileNotFoundError):
                stay.append(_decoded(tree, _manifest_name(number)))
    tree.remove(_manifest_name(number) for number in gone)
    if tree.directory is not None:
        _remove_folders(tree.path(VERSIONS), {os.path.basename(kept.folder()) for kept in stay})
        return
    named = {file.path for kept in stay for file in kept.files}
    tree.remove(
        [
            file.name
            for file in tree.files(VERSIONS)
            if file.name not in named and file.modified_ms < now_ms - KEPT_MS
        ]
    )


def _remove_folders(parent: str, stay: set[str]) -> None:
    """Delete directories of versions; those without a manifest are of runs that were killed."""
    for name in os.listdir(parent) if os.path.isdir(parent) else []:
        if name not in stay:
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
