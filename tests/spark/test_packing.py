"""The zip for executors: what is in it, that it works alone, and what cannot stand in for it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from logqueue.pipeline.engines.spark.session import packing
from logqueue.pipeline.errors import PipelineError


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> packing.CodeArchive:
    """The zip."""
    return packing.pack(tmp_path_factory.mktemp("packed") / "logqueue.zip")


def test_it_holds_our_packages_and_both_formats_at_its_top(packed: packing.CodeArchive) -> None:
    with zipfile.ZipFile(packed.path) as held:
        assert held.testzip() is None
        names = held.namelist()
    ours = {"logqueue", "wal", "pyspark_logqueue", "pyspark_logqueue_wal"}
    assert {name.partition("/")[0] for name in names} - {"typing_extensions.py"} == {
        *ours,
        *(name for name in packing.CARRIED if importlib.util.find_spec(name) is not None),
    }
    assert len(names) == len(set(names)) == packed.files
    assert not [name for name in names if name.endswith((".pyc", ".so"))]
    assert not [name for name in names if "registration" in name]
    assert packed.bytes == packed.path.stat().st_size


def test_equal_code_gives_equal_bytes(packed: packing.CodeArchive, tmp_path: Path) -> None:
    again = packing.pack(tmp_path / "again.zip")
    assert again.path.read_bytes() == packed.path.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.zip"]


ALONE = """\
import sys
import pyspark_logqueue, pyspark_logqueue_wal
import logqueue.segments.walk, logqueue.pipeline.rows.segment_batches
import logqueue.pipeline.engines.spark.formats.sink
import logqueue.pipeline.rows.archive_files
from logqueue.client import Client
with Client("https://127.0.0.1:9"):
    pass
print(sorted({pyspark_logqueue.DefaultSource.name(), pyspark_logqueue_wal.DefaultSource.name()}))
print(sorted({name.partition(".")[0] for name, module in sys.modules.items()
    if (getattr(module, "__file__", None) or "").startswith(sys.argv[1])}))
assert "logqueue.zip" in logqueue.__file__, logqueue.__file__
"""


def test_executors_need_no_more_than_is_said(packed: packing.CodeArchive, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    site = Path(sysconfig.get_path("purelib"))
    for name in (*packing.NEEDED, "pyspark", "py4j"):
        (tmp_path / name).symlink_to(site / name)
    (tmp_path / "pyarrow.libs").symlink_to(site / "pyarrow.libs")
    # Without `site`, which would find all that is installed here, the checkout among it.
    done = subprocess.run(
        [sys.executable, "-S", "-c", ALONE, str(tmp_path)],
        env={"PYTHONPATH": f"{packed.path}:{tmp_path}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    formats, used = done.stdout.splitlines()
    assert formats == "['logqueue', 'logqueue-wal']"
    assert set(packing.NEEDED) | {"pyspark", "py4j"} >= set(eval(used))


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("dist/logqueue-1.0-py3-none-any.whl", "is a wheel, which Spark gives to the driver only"),
        ("logqueue.tar.gz", "executors take code from .zip, .egg, .py files only"),
    ],
)
def test_what_executors_would_not_take_is_said(path: str, says: str) -> None:
    packing.require_usable(["a.zip", "b.egg", "c.py", "hdfs://host/d.zip"])
    with pytest.raises(PipelineError, match=says):
        packing.require_usable(["a.zip", path])


def test_a_place_that_can_not_be_written_to_is_said(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"end in \.zip"):
        packing.pack(tmp_path / "logqueue.whl")
    with pytest.raises(PipelineError, match="cannot be written: No such file"):
        packing.pack(tmp_path / "nowhere" / "logqueue.zip")
