"""Workers as programs: finding the app, checking it, starting anew when code changes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logqueue.client import Client
from logqueue.testing import ServerProcess
from logqueue.worker import App, AppNotFound, Reject, Retry, check, load_app, run_worker
from logqueue.worker.reload import snapshot
from tests.worker import slow_functions


def test_an_app_is_found_by_module_and_name() -> None:
    assert load_app("tests.worker.slow_functions:app") is slow_functions.app


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("tests.worker.slow_functions", "module:app"),
        (":app", "module:app"),
        ("no.such.module:app", "cannot be imported"),
        ("tests.worker.slow_functions:nothing", "has no 'nothing'"),
        ("tests.worker.slow_functions:Path", "is not an App"),
    ],
)
def test_a_wrong_reference_says_what_is_wrong(reference: str, said: str) -> None:
    with pytest.raises(AppNotFound, match=said):
        load_app(reference)


def test_check_lists_every_handler() -> None:
    app = App()
    app.task(queue="a", name="one", timeout=5.0, concurrency=3)(print_nothing)
    app.consumer("b")(print_nothing)
    assert check(app) == [
        "a: one (thread, nack_on_error, concurrency 3, timeout 5 s)",
        "b: print_nothing (thread, nack_on_error, concurrency of the worker, timeout none)",
    ]


def print_nothing() -> None:
    """A handler."""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queues": ["absent"]}, "no handler for absent"),
        ({"concurrency": 0}, "concurrency"),
        ({"prefetch": -1}, "prefetch"),
        ({"lease": 0.01}, "lease"),
        ({"lease": 60.0, "max_lease": 30.0}, "max_lease"),
        ({"processes": 0}, "processes"),
        ({"metrics_port": 65_536}, "metrics_port is 65536; ports go from 0 to 65535"),
        ({"processes": 2}, "module:app"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run_worker(slow_functions.app, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("register", "said"),
    [
        (lambda app: [app.task(name="x")(print_nothing) for _ in "ab"], "already"),
        (lambda app: [app.consumer("q")(print_nothing) for _ in "ab"], "alone"),
        (
            lambda app: [app.consumer("q")(print_nothing), app.task(queue="q")(print_nothing)],
            "takes all its jobs",
        ),
        (lambda app: app.task(timeout=0)(print_nothing), "timeout"),
        (lambda app: app.task(concurrency=0)(print_nothing), "concurrency"),
    ],
)
def test_registrations_that_contradict_are_refused(register: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        register(App())  # type: ignore[operator]


def test_a_worker_runs_on_a_loop_of_its_own_and_touches_no_signal(
    real_server: ServerProcess, client: Client
) -> None:
    app = App(real_server.url)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    during: list[object] = []

    @app.task(queue="run-once", retry=Retry.none())
    async def look() -> None:
        during.extend(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT))
        raise Reject("seen enough")

    look.send()
    assert run_worker(app, once=True) == 1, "a job failed"
    app.close()
    assert during[0] == before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_key_that_does_not_do_ends_the_worker_with_a_failure(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", API_KEYS="reader-0123456789:read") as server:
        app = App(server.url, "reader-0123456789")
        app.consumer("q")(print_nothing)
        assert run_worker(app, once=True) == 1


def test_a_change_of_a_file_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "__pycache__").mkdir()
    seen = snapshot([tmp_path])
    (tmp_path / "note.txt").write_text("x")
    (tmp_path / "__pycache__" / "a.py").write_text("x")
    assert snapshot([tmp_path]) == seen
    (tmp_path / "b.py").write_text("2")
    assert snapshot([tmp_path]) != seen


RELOADING = """
import signal, sys
from pathlib import Path
from logqueue.worker.reload import run_reloading
program = "from pathlib import Path; p = Path({runs!r}); f = p.open('a'); f.write('x'); f.close();"
program += "import signal; signal.pause()"
sys.exit(run_reloading([sys.executable, "-c", program], [Path({folder!r})],
                       signals=[signal.SIGTERM], poll_s=0.01))
"""


def test_a_program_is_started_anew_when_its_code_changes(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    runs = tmp_path / "runs"
    runs.touch()
    script = RELOADING.format(runs=str(runs), folder=str(code))
    child = subprocess.Popen([sys.executable, "-c", script])
    try:
        until_size(runs, 1)
        (code / "a.py").write_text("1")
        until_size(runs, 2)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20.0) == 256 - signal.SIGTERM, "it passes on how its program ended"
    finally:
        child.kill()
        child.wait()


def until_size(path: Path, size: int) -> None:
    """Wait until a file has so many bytes."""
    import time

    ends = time.monotonic() + 20.0
    while path.stat().st_size < size:
        assert time.monotonic() < ends, f"{path} stays at {path.stat().st_size} bytes"
        time.sleep(0.005)
