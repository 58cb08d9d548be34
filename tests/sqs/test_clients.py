"""Clients that take longer: Celery under load and kills, Amazon's client for JavaScript."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from logqueue.server.auth import signing_credentials
from tests.house import ROOT
from tests.http.api import Api
from tests.http.process import ServerProcess

SECRET = "of-this-test"
TASKS = 60
END_S = 120.0

TASKS_PY = """
import os, pathlib, time
from celery import Celery, chain, group

app = Celery("load", broker=os.environ["BROKER_URL"])
app.conf.update(
    broker_transport_options={
        "region": "us-east-1", "visibility_timeout": 8, "wait_time_seconds": 2,
        "queue_name_prefix": "c-",
    },
    task_acks_late=True, task_reject_on_worker_lost=True, task_ignore_result=True,
    worker_enable_remote_control=False, worker_prefetch_multiplier=2,
)
done = pathlib.Path("done")

def note(line):
    done.mkdir(exist_ok=True)
    (done / f"{os.getpid()}.txt").open("a").write(line + "\\n")

@app.task(bind=True, autoretry_for=(OSError,), default_retry_delay=1, max_retries=5)
def flaky(self, number):
    if number % 5 == 0 and self.request.retries < 2:
        raise OSError("try again")
    time.sleep(0.1)
    note(f"flaky {number}")
    follow.apply_async((number,), countdown=number % 3)

@app.task
def follow(number):
    note(f"follow {number}")

@app.task
def add(a, b):
    note(f"add {a + b}")
    return a + b

if __name__ == "__main__":
    for number in range(TASKS):
        flaky.delay(number)
    group(add.s(n, 1000) for n in range(5)).apply_async()
    chain(add.s(1, 2000), add.s(10), add.s(100)).apply_async()
""".replace("range(TASKS)", f"range({TASKS})")

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with keys."""
    process = ServerProcess(
        tmp_path / "data", flags=["--sqs"], settings={"API_KEYS": SECRET}, probe_key=SECRET
    )
    yield process.start()
    process.stop()


def test_celery_runs_every_task_through_kills(server: ServerProcess, tmp_path: Path) -> None:
    pytest.importorskip("celery")
    (tmp_path / "load.py").write_text(TASKS_PY)
    identity, secret = signing_credentials(SECRET)
    port = f":{server.port}//"
    broker = f"sqs://{identity}:{secret}@{server.host}{port}"
    environment = {**os.environ, "BROKER_URL": broker, "PYTHONPATH": str(tmp_path)}
    worker = [sys.executable, "-m", "celery", "-A", "load", "worker", "-c", "2"]
    worker += ["--without-gossip", "--without-mingle", "--without-heartbeat"]

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "worker.log").open("ab") as output:
            return subprocess.Popen(
                worker,
                cwd=tmp_path,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def done() -> Counter[str]:
        files = (tmp_path / "done").glob("*.txt")
        return Counter(line for path in files for line in path.read_text().splitlines())

    subprocess.run([sys.executable, "load.py"], cwd=tmp_path, env=environment, check=True)
    expected = {f"{name} {n}" for name in ("flaky", "follow") for n in range(TASKS)}
    expected |= {f"add {n}" for n in (*range(1000, 1005), 2001, 2011, 2111)}
    ends = time.monotonic() + END_S
    running = start()
    try:
        for share in (4, 2):
            while len(done()) < len(expected) // share:
                assert time.monotonic() < ends, (tmp_path / "worker.log").read_text()[-5000:]
                time.sleep(0.05)
            # The group of its pool too: as when the machine goes.
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            if share == 2:
                server.restart()
                environment["BROKER_URL"] = broker.replace(port, f":{server.port}//")
            running = start()
        while {*done()} != expected:
            assert time.monotonic() < ends, (tmp_path / "worker.log").read_text()[-5000:]
            time.sleep(0.1)
        with Api(server.base_url, key=SECRET) as api:
            while api.state("c-celery").json()["count"]:
                assert time.monotonic() < ends
                time.sleep(0.1)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def test_the_client_for_javascript(server: ServerProcess, tmp_path: Path) -> None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs Node.js")
    folder = tmp_path / "javascript"
    shutil.copytree(ROOT / "tests/sqs/javascript", folder)
    installed = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, capture_output=True
    )
    if installed.returncode:
        pytest.skip("the registry of npm does not answer")
    done = subprocess.run(
        [node, "client.mjs", f"{server.base_url}/sqs", *signing_credentials(SECRET)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "ok\n", done.stderr
