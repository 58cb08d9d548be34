"""The real server on a small real disk that fills up: nothing acked is lost, nothing done comes
back, no seq is used twice, and once there is room the space comes back.

Needs root, for the disk is a `tmpfs` of its own. LOGQUEUE_TEST_EFFORT multiplies the number of
lives.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.http.process import ServerProcess

EFFORT = int(os.environ.get("LOGQUEUE_TEST_EFFORT", "1"))
LIVES = 2 * EFFORT
DISK_BYTES = 14 << 20
SEGMENT_BYTES = 3 << 20
PATIENCE_S = 120.0
PAD = "x" * 400


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty disk that holds no more than `DISK_BYTES`."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    options = f"size={DISK_BYTES}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


class Site:
    """A server on a small disk, and what its clients know.

    Attributes:
        shown: Data of each seq of `keep` whose write was answered.
        done: Those whose ack was answered.
        unsure: Those whose ack was not.
    """

    def __init__(self, disk: Path, tmp_path: Path) -> None:
        self.disk = disk
        settings = {
            "SEGMENT_MAX_BYTES": str(SEGMENT_BYTES),
            "ARCHIVE_DIR": "",
            "LOG_LEVEL": "info",
        }
        self.server = ServerProcess(tmp_path / "data", settings=settings)
        # Port file and output stay off the small disk.
        self.server.data_dir = disk / "data"
        self.http = httpx.Client(timeout=PATIENCE_S, trust_env=False, verify=False)
        self.shown: dict[int, str] = {}
        self.done: set[int] = set()
        self.unsure: set[int] = set()
        self.number = 0

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request."""
        url = f"{self.server.base_url}/v0/{path}"
        return self.http.request(method, url, json=body)

    def begin(self) -> None:
        """A queue to keep, and churn."""
        for name, kind in (("keep", "queue"), ("churn", "log")):
            config = {"type": kind, "durability": "fsync", "lease_ms": 3_600_000}
            assert self.call("PUT", f"topics/{name}", config).status_code == 201

    def write(self, name: str, records: int) -> bool:
        """A batch; False when the disk is full."""
        data = [f"{self.number + i}-{PAD}" for i in range(records)]
        self.number += records
        body = {"records": [{"data": one} for one in data]}
        reply = self.call("POST", f"topics/{name}", body)
        if reply.status_code in (200, 201):
            first = reply.json()["first_seq"]
            if name == "keep":
                for seq, one in enumerate(data, first):
                    assert self.shown.setdefault(seq, one) == one, f"seq {seq} came twice"
            return True
        assert reply.status_code == 500, reply.text
        assert reply.json()["error"]["detail"]["reason"] == "storage_full", reply.text
        return False

    def fill(self, batches: int) -> None:
        """Some that stays, and then what goes, until the disk is full."""
        for _ in range(batches):
            if not self.write("keep", 300):
                break
        # Room to give space back is kept once there is something to move.
        limit = time.monotonic() + PATIENCE_S
        reserve = self.disk / "data/jobs/RESERVE"
        while not reserve.exists():
            assert time.monotonic() < limit
            time.sleep(0.1)
        while self.write("churn", 200):
            pass
        while self.write("churn", 5):
            pass

    def work(self, jobs: int) -> None:
        """Claim and ack, while the disk is full."""
        body = {"node": "w", "max": jobs, "lease_ms": 3_600_000}
        claimed = self.call("POST", "topics/keep/claim", body).json()["claimed"]
        seqs = [job["$seq"] for job in claimed]
        for job in claimed:
            assert job["$seq"] not in self.done, f"{job['seq']} was done and is back"
        self.unsure |= set(seqs)
        reply = self.call("POST", "topics/keep/ack", {"node": "w", "seqs": seqs})
        assert reply.status_code == 200, f"a full disk must have room for acks: {reply.text}"
        self.done |= set(seqs)
        self.unsure -= set(seqs)

    def clear(self) -> None:
        """Let the churn go."""
        head = self.call("GET", "topics/churn").json()["head_seq"]
        reply = self.call("POST", "topics/churn/delete", {"before_seq": head + 1})
        assert reply.status_code == 200, f"a full disk must have room for deletes: {reply.text}"

    def await_tidying(self, rounds: int) -> None:
        """Until tidying has tried so often, which it does once a second."""
        limit = time.monotonic() + PATIENCE_S
        before = self.segments()
        quiet = 0
        while quiet < rounds and time.monotonic() < limit:
            time.sleep(1.0)
            now = self.segments()
            quiet = quiet + 1 if now == before else 0
            before = now

    def await_room(self) -> None:
        """Until what was deleted has given its space back."""
        limit = time.monotonic() + PATIENCE_S
        while not self.write("churn", 200):
            assert time.monotonic() < limit, "what was deleted gives its space back"
            time.sleep(0.2)

    def segments(self) -> list[str]:
        """Names of the segments of the jobs log."""
        return sorted(p.name for p in (self.disk / "data/jobs").glob("*.wal"))

    def check(self) -> None:
        """Hold all live records against what was answered."""
        found: dict[int, str] = {}
        after = 0
        while True:
            body = {"from_seq": after, "limit": 1000}
            reply = self.call("POST", "topics/keep/diff", body).json()
            found |= {record["$seq"]: record["data"] for record in reply["records"]}
            if reply["next_from_seq"] <= after or not reply["records"]:
                break
            after = reply["next_from_seq"]
        expected = {s: d for s, d in self.shown.items() if s not in self.done | self.unsure}
        missing = expected.keys() - found.keys()
        assert not missing, f"{len(missing)} of {len(expected)} acked records are lost"
        assert all(found[seq] == data for seq, data in expected.items())
        back = self.done & found.keys()
        assert not back, f"{len(back)} jobs were done and are back"


def test_a_full_disk_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    site = Site(small_disk, tmp_path)
    rng = Random(7)
    try:
        site.server.start()
        site.begin()
        for life in range(LIVES):
            site.fill(rng.choice((15, 20)))
            site.work(50)
            site.clear()
            site.await_tidying(rounds=2)
            if life == 0:
                site.await_room()
            else:
                # Most of the log is live.
                site.write("churn", 200)
            site.work(50)
            site.server.kill()
            site.server.start()
            site.check()
        jobs = site.call("GET", "topics/keep").json()["count"]
        assert jobs > 1000, "the disk was filled"
        while (left := site.call("GET", "topics/keep").json()["count"]) > 200:
            site.work(min(left, 500))
        site.await_tidying(rounds=3)
        # A little garbage is let be until somebody is refused.
        if not site.write("churn", 100):
            site.await_tidying(rounds=3)
        for _ in range(20):
            assert site.write("churn", 100), "the space came back"
        site.check()
    finally:
        site.http.close()
        site.server.stop()
