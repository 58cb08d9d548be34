"""Files in the file systems of Hadoop, reached through the Java of the session: to read.

Owns: calls of Hadoop's file system. Must not know: what files hold. What is in files is read by
Spark itself; only manifests and listings come this way. Tasks in Python have no Java beside them,
so nothing is written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.tree import FileInfo


class HadoopTree:
    """The files below a URL such as hdfs://name/path; see `FileTree`."""

    def __init__(self, url: str) -> None:
        """Nothing is read yet.

        Raises:
            PipelineError: There is no session with a Java of its own in this process.
        """
        self._url = url.rstrip("/")
        self._java()

    def _java(self) -> Any:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        java = getattr(spark, "_jvm", None)
        if java is None:
            raise PipelineError(
                f"{self._url} is reached by Spark alone, through its Java: use --engine spark, and "
                "--master rather than --remote"
            )
        return java

    def _opened(self, name: str) -> tuple[Any, Any]:
        """The file system, and the path of a file."""
        from pyspark.sql import SparkSession

        java, spark = self._java(), SparkSession.getActiveSession()
        path = java.org.apache.hadoop.fs.Path(self.path(name).rstrip("/"))
        settings = spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[union-attr]
        return path.getFileSystem(settings), path

    @property
    def url(self) -> str:
        """See FileTree."""
        return self._url

    @property
    def directory(self) -> str | None:
        """See FileTree."""
        return None

    def path(self, name: str) -> str:
        """See FileTree."""
        return f"{self._url}/{name}"

    def below(self, folder: str) -> HadoopTree:
        """See FileTree."""
        return HadoopTree(self.path(folder))

    def read(self, name: str) -> bytes:
        """See FileTree."""
        with self._reported(name):
            files, path = self._opened(name)
            stream = files.open(path)
            try:
                return bytes(self._java().org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def source(self, name: str) -> Any:
        """See FileTree."""
        import pyarrow as pa

        return pa.BufferReader(self.read(name))

    def info(self, name: str) -> FileInfo | None:
        """See FileTree."""
        try:
            with self._reported(name):
                files, path = self._opened(name)
                state = files.getFileStatus(path)
        except FileNotFoundError:
            return None
        return FileInfo(name, state.getLen(), state.getModificationTime())

    def files(self, prefix: str = "") -> Iterator[FileInfo]:
        """See FileTree."""
        try:
            with self._reported(prefix):
                files, path = self._opened(prefix)
                below = len(str(files.makeQualified(self._opened("")[1]).toString())) + 1
                found = files.listFiles(path, True)
                while found.hasNext():
                    state = found.next()
                    name = str(state.getPath().toString())[below:]
                    if not name.rpartition("/")[2].startswith("_lock"):
                        yield FileInfo(name, state.getLen(), state.getModificationTime())
        except FileNotFoundError:
            return

    def folders(self, prefix: str = "") -> list[str]:
        """See FileTree."""
        try:
            with self._reported(prefix):
                files, path = self._opened(prefix)
                every = files.listStatus(path)
                return sorted(str(s.getPath().getName()) for s in every if s.isDirectory())
        except FileNotFoundError:
            return []

    def create(self, name: str, data: bytes) -> bool:
        """See FileTree."""
        self._refuse()

    def replace(self, name: str, data: bytes) -> None:
        """See FileTree."""
        self._refuse()

    def add(self, local: str, name: str) -> None:
        """See FileTree."""
        self._refuse()

    def scratch(self, name: str) -> AbstractContextManager[str]:
        """See FileTree."""
        self._refuse()

    def remove(self, names: Iterable[str]) -> None:
        """See FileTree."""
        self._refuse()

    def lock(self, work: str) -> AbstractContextManager[Any]:
        """See FileTree."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise PipelineError(
            f"nothing is written to {self._url}, which only Spark reaches: write to a directory "
            "that all machines share or to an object store, s3://BUCKET/PREFIX, and copy from "
            "there; it is read where it is"
        )

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            kind = error.java_exception.getClass().getSimpleName()
            if kind in ("FileNotFoundException", "NotInMountpointException"):
                raise FileNotFoundError(self.path(name)) from error
            reason = error.java_exception.getMessage()
            raise PipelineError(f"{self.path(name)} cannot be read: {kind}: {reason}") from error
