"""`work --exec`, and `worker`: programs that do jobs until they are told to stop."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from logqueue.client import Client, NewRecord
from logqueue.shapes import Job
from tests.cli.conftest import END_S, Shell, finish


def next_line(process: subprocess.Popen[bytes]) -> bytes:
    """The next line on a running command's stdout."""
    assert process.stdout is not None
    return process.stdout.readline()


def come_back(client: Client, queue: str) -> list[Job]:
    """The jobs of a queue; what was handed back may be out of sight for a moment."""
    ends = time.monotonic() + END_S
    while not (jobs := client.claim(queue).jobs):
        assert time.monotonic() < ends, client.topic(queue)
        time.sleep(0.05)
    return jobs


def test_a_program_gets_its_job(shell: Shell, client: Client, queue: str) -> None:
    client.append(queue, [NewRecord({"n": 1.5}, tag="t", meta={"m": [1]})])
    script = (
        'cat; echo "$LOGQUEUE_QUEUE $LOGQUEUE_SEQ $LOGQUEUE_DELIVERIES $LOGQUEUE_TAG '
        '$LOGQUEUE_META $LOGQUEUE_URL [${LOGQUEUE_KEY-none}]"; test -n "$LOGQUEUE_LEASE_ID"'
    )
    ended = shell.run("work", queue, "--once", "--exec", script)
    assert ended.status == 0, ended.err
    url = shell.environment["LOGQUEUE_URL"]
    assert ended.out == f'{{"n":1.5}}\n{queue} 1 1 t {{"m":[1]}} {url} [none]\n'
    assert ended.err == "logqueue work: 1 job done, 0 failed\n"
    assert client.topic(queue).count == 0


def test_text_can_come_as_it_is(shell: Shell, client: Client, queue: str) -> None:
    client.append(queue, ["no\nnewline", {"a": 1}])
    ended = shell.run("work", queue, "--once", "--raw", "--exec", "cat; echo .")
    assert ended.out == 'no\nnewline.\n{"a":1}\n.\n'


def test_a_program_that_fails_is_run_again(shell: Shell, client: Client, queue: str) -> None:
    client.append(queue, ["x"])
    script = 'echo "try $LOGQUEUE_DELIVERIES" >&2; test "$LOGQUEUE_DELIVERIES" = 3'
    process = shell.start(
        "work", queue, "--json", "--first-delay", "10ms", "--max-delay", "10ms", "--exec", script
    )
    lines = [json.loads(next_line(process)) for _ in range(3)]
    assert [(line["deliveries"], line["outcome"], line["status"]) for line in lines] == [
        (1, "failed", 1),
        (2, "failed", 1),
        (3, "acked", 0),
    ]
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert ended.status == 0
    assert "try 1\nlogqueue work: job 1 failed: exit status 1: try 1\n" in ended.err
    assert client.topic(queue).count == 0


def test_what_a_program_can_end_with(shell: Shell, client: Client, queue: str) -> None:
    client.append(queue, ["timeout", "signal", "reject", "deaf"])
    script = (
        'case "$(cat)" in timeout) sleep 60;; signal) kill -KILL $$;; reject) exit 65;; '
        "deaf) exec true;; esac"
    )
    flags = ("--raw", "--timeout", "500ms", "--reject-on", "65", "--max-attempts", "1", "--json")
    ended = shell.run("work", queue, "--once", *flags, "--exec", script)
    assert ended.status == 1, "jobs failed"
    seen = {(line["seq"], line["outcome"], line["status"]) for line in ended.lines}
    assert {
        (1, "failed", None),
        (2, "failed", -9),
        (3, "rejected", 65),
        (4, "acked", 0),
    } <= seen
    assert "took longer than 0.5 s" in ended.err and "signal 9" in ended.err


def test_a_program_need_not_read_its_stdin(shell: Shell, client: Client, queue: str) -> None:
    client.append(queue, ["x" * 500_000])
    assert shell.run("work", queue, "--once", "--exec", "true").status == 0
    assert client.topic(queue).count == 0


def test_leases_are_kept_while_a_program_runs(shell: Shell, client: Client, queue: str) -> None:
    client.append(queue, ["x"])
    # Five leases long.
    ended = shell.run("work", queue, "--once", "--lease", "300ms", "--json", "--exec", "sleep 1.5")
    assert [(line["deliveries"], line["outcome"]) for line in ended.lines] == [(1, "acked")]
    assert client.topic(queue).count == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_sees_programs_to_their_end(
    number: signal.Signals, shell: Shell, client: Client, queue: str
) -> None:
    client.append(queue, [1, 2])
    go = shell.folder / "go"
    script = f"echo begun; until test -e {go}; do sleep 0.02; done"
    process = shell.start("work", queue, "--exec", script)
    assert next_line(process) == b"begun\n"
    process.send_signal(number)
    go.touch()
    ended = finish(process)
    assert ended.status == 0, ended.err
    state = client.topic(queue)
    assert state.queue is not None
    assert (state.count, state.queue.in_flight) == (1, 0)


def test_a_stop_without_grace_ends_programs_and_gives_jobs_back(
    shell: Shell, client: Client, queue: str
) -> None:
    client.append(queue, [1])
    pids = shell.folder / "pid"
    script = f"echo $$ > {pids}; echo begun; sleep 1000 & wait"
    process = shell.start("work", queue, "--grace", "0", "--exec", script)
    assert next_line(process) == b"begun\n"
    process.send_signal(signal.SIGTERM)
    assert finish(process).status == 0
    assert not Path(f"/proc/{pids.read_text().strip()}").exists()
    (job,) = come_back(client, queue)
    assert job.deliveries <= 2


def test_nothing_to_do_is_status_3(shell: Shell, queue: str) -> None:
    ended = shell.run("work", queue, "--once", "--exec", "true")
    assert ended.status == 3 and "no job to claim" in ended.err


def test_a_log_hands_out_no_jobs(shell: Shell, client: Client, topic: str) -> None:
    client.put_topic(topic)
    ended = shell.run("work", topic, "--exec", "true")
    assert ended.status == 1 and "is a log" in ended.err


# -- worker --------------------------------------------------------------------------------------

APP = """
from logqueue import App

app = App()
empty = App()


@app.task(queue="{queue}", timeout=5)
async def greet(name: str) -> None:
    print("hello", name, flush=True)
"""


@pytest.fixture
def module(shell: Shell, queue: str) -> str:
    """An app in a module of the folder that commands run in."""
    (shell.folder / "shop.py").write_text(APP.format(queue=queue))
    return "shop"


def call(name: str) -> dict[str, object]:
    """A job for the task."""
    return {"task": "greet", "args": [name], "kwargs": {}}


def test_a_worker_runs_tasks_until_it_is_told_to_stop(
    shell: Shell, client: Client, queue: str, module: str
) -> None:
    process = shell.start("worker", f"{module}:app", "-c", "2", "--log-format", "json")
    client.append(queue, [call("ann")])
    assert next_line(process) == b"hello ann\n"
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert ended.status == 0, ended.err
    assert all(json.loads(line)["level"] == "info" for line in ended.err.splitlines())
    assert client.topic(queue).count == 0


def test_a_worker_can_end_with_the_work(
    shell: Shell, client: Client, queue: str, module: str
) -> None:
    client.append(queue, [call("ann"), call("bob")])
    url = shell.environment.pop("LOGQUEUE_URL")
    ended = shell.run("worker", f"{module}:app", "--once", "--url", url)
    assert (ended.status, sorted(ended.out.splitlines())) == (0, ["hello ann", "hello bob"])
    client.append(queue, [{"task": "greet", "args": [["no name"]]}])
    failed = shell.run("worker", f"{module}:app", "--once", "--url", url)
    assert failed.status == 1 and "jobs that failed: 1" in failed.err


def test_a_worker_lists_what_it_would_run(shell: Shell, queue: str, module: str) -> None:
    listed = shell.run("worker", f"{module}:app", "--check")
    assert listed.status == 0 and listed.out.startswith(f"{queue}: greet (loop, nack_on_error")
    (handler,) = shell.run("worker", f"{module}:app", "--check", "--json").json["handlers"]
    assert (handler["queue"], handler["name"], handler["timeout_s"]) == (queue, "greet", 5.0)
    nothing = shell.run("worker", f"{module}:empty", "--check")
    assert nothing.status == 1 and "no task" in nothing.err


def test_checking_an_app_fails_where_a_declared_queue_differs(
    shell: Shell, client: Client, queue: str, module: str
) -> None:
    path = shell.folder / "shop.py"
    path.write_text(f"{path.read_text()}\napp.queue({queue!r}, max_deliveries=4)\n")
    differs = shell.run("worker", f"{module}:app", "--check")
    assert differs.status == 4
    assert differs.err == (
        f"logqueue worker: queue {queue}: max_deliveries is 0, the app declares 4\n"
    )
    client.patch_topic(queue, max_deliveries=4)
    assert shell.run("worker", f"{module}:app", "--check").status == 0


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("nowhere:app",), 1),
        (("shop:nothing",), 1),
        (("shop",), 1),
        (("shop:app", "-q", "other"), 2),
        (("shop:app", "--prefetch", "-1"), 2),
        (("shop:app", "--lease", "0s"), 2),
    ],
)
def test_a_worker_that_can_not_be_is_one_line(
    arguments: tuple[str, ...], status: int, shell: Shell, module: str
) -> None:
    ended = shell.run("worker", *arguments)
    assert ended.status == status
    assert ended.err.splitlines()[-1].startswith("logqueue worker: ")
    assert "Traceback" not in ended.err


def test_a_worker_starts_again_when_its_code_changes(
    shell: Shell, client: Client, queue: str, module: str
) -> None:
    process = shell.start("worker", f"{module}:app", "--reload")
    client.append(queue, [call("ann")])
    assert next_line(process) == b"hello ann\n"
    path = shell.folder / "shop.py"
    path.write_text(path.read_text().replace('"hello"', '"good day,"'))
    # The old worker may still be there for the first of these.
    said, number = b"", 0
    while not said.startswith(b"good day"):
        client.append(queue, [call(f"bob {number}")])
        said, number = next_line(process), number + 1
    process.send_signal(signal.SIGTERM)
    assert finish(process).status == 0
