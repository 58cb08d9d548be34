"""An archive whose process is killed again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.contents import holes, live_entries
from logqueue.pipeline.rows.archive_files import sha256_of
from logqueue.pipeline.storage.opening import open_tree
from tests.effort import scaled
from tests.spark.sinking import Target

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 2400
PER_EPOCH = 200
KILLS = scaled(1, 2)
"""Each is a Spark that starts anew."""
PAUSE_S = 0.05

JOB = """
import json, sys
from logqueue.pipeline.engines.spark.archive import job as archive
from logqueue.pipeline.engines.spark.session import session
from tests.spark.conftest import SETTINGS

url, root, per_epoch = sys.argv[1:]
spark = session.open_session("local[2]", conf=SETTINGS, app_name="killed")
told = archive.run_archive(
    spark, {"url": url}, root, max_records=int(per_epoch), tables=["records"]
)
print(json.dumps(told), flush=True)
"""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    yield from Target.opened(tmp_path)


def archived(root: Path) -> int:
    """How many epochs have a manifest."""
    ids = manifests.archive_ids(open_tree(str(root)), "records")
    return sum(len(manifests.epochs(open_tree(str(root)), archive)) for archive in ids)


def test_random_kills(target: Target, tmp_path: Path) -> None:
    """Whatever is on the disk at each end. All is there once."""
    with target.client() as client:
        for topic in ("a", "b"):
            client.append(topic, ({"n": n} for n in range(RECORDS // 2)), create=True)
    root = tmp_path / "archive"
    chance = random.Random(3)
    for kill in range(KILLS + 1):
        target_epochs = kill * 4 + chance.randrange(2, 5) if kill < KILLS else None
        _run(target.url, root, target_epochs, tmp_path / "output")
    found: dict[str, list[int]] = {"a": [], "b": []}
    for entry in live_entries(open_tree(str(root)), "records"):
        path = root / entry.path
        assert (path.stat().st_size, sha256_of(str(path))) == (entry.bytes, entry.sha256)
        seqs = pq.read_table(path, partitioning=None).column("seq").to_pylist()
        assert (seqs[0], seqs[-1], len(seqs)) == (entry.first, entry.last, entry.rows)
        found[entry.topic] += seqs
    assert found == {topic: [*range(1, RECORDS // 2 + 1)] for topic in found}
    assert holes(open_tree(str(root)), "records") == []
    assert manifests.archive_ids(open_tree(str(root)), "records") == ["records-0001"]


def _run(url: str, root: Path, epochs: int | None, output: Path) -> None:
    """Run the job, and end it by SIGKILL when it has come so far; None lets it end."""
    command = [sys.executable, "-c", JOB, url, str(root), str(PER_EPOCH)]
    with output.open("ab") as errors:
        job = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    try:
        while epochs is not None and job.poll() is None and archived(root) < epochs:
            with suppress(subprocess.TimeoutExpired):
                job.wait(PAUSE_S)
        if epochs is not None:
            assert job.poll() is None, output.read_text()[-3000:]
            os.killpg(job.pid, signal.SIGKILL)
        assert job.stdout is not None
        told = job.stdout.read()
        assert job.wait() == (0 if epochs is None else -signal.SIGKILL), output.read_text()[-3000:]
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        if job.stdout is not None:
            job.stdout.close()
    if epochs is None:
        assert json.loads(told)["job"] == "archive"
