"""`logqueue serve` forked from a process that has imported the server already.

Importing takes ten times as long as starting, and tests start hundreds of servers. Owns: that
process, and what stands for one of its children. Must not know: ports, data directories. What is
forked runs the command line of logqueue as `python -m logqueue` does; tests of how an interpreter
starts use `subprocess`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.http.forked", "tests.http.preloaded"])


class Forked:
    """A child with the output in a file; as much of `subprocess.Popen` as tests use."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], output: str) -> None:
        """Start it.

        Args:
            arguments: Of the `logqueue` command.
            env: All of its environment.
            output: The file that its output is appended to.
        """
        self._process = _context.Process(target=_run, args=([*arguments], {**env}, output))
        self._process.start()

    @property
    def pid(self) -> int:
        """Its id."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit status; negative for a signal, None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended.

        Raises:
            subprocess.TimeoutExpired: It has not.
        """
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise subprocess.TimeoutExpired("logqueue", timeout or 0.0)
        self._process.close()
        return status


def started(
    arguments: Sequence[str], env: Mapping[str, str], output: str
) -> Forked | subprocess.Popen[bytes]:
    """A server forked, or in an interpreter of its own where a `sitecustomize` on the path wants to
    change how an interpreter begins. Arguments: see `Forked`."""
    paths = env.get("PYTHONPATH", "").split(os.pathsep)
    if not any(Path(path, "sitecustomize.py").exists() for path in paths if path):
        return Forked(arguments, env, output)
    with open(output, "ab") as file:
        command = [sys.executable, "-m", "logqueue", *arguments]
        return subprocess.Popen(command, env=dict(env), stdout=file, stderr=file)


class AsSubprocess:
    """What `logqueue.testing.ServerProcess` takes for the module `subprocess`, in our tests."""

    DEVNULL, STDOUT = subprocess.DEVNULL, subprocess.STDOUT
    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def Popen(
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        stdout: IO[bytes],
        stderr: int,
    ) -> Forked | subprocess.Popen[bytes]:
        """Start `python -m logqueue` with no input and all of its output in one file."""
        assert [*command[:3]] == [sys.executable, "-m", "logqueue"], command
        assert (stdin, stderr) == (subprocess.DEVNULL, subprocess.STDOUT)
        return started(command[3:], env, stdout.name)


def _run(arguments: list[str], env: dict[str, str], output: str) -> None:
    """In the child: be a `python -m logqueue` that was started this moment."""
    os.environ.clear()
    os.environ.update(env)
    with open(output, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["logqueue", *arguments]
    from logqueue.cli import main

    sys.exit(main())
