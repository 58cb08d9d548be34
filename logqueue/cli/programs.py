"""Programs as handlers of jobs: one process per job.

Owns: what a program is given, what its exit status means, and its end. Must not know: leases,
retries, streams; the worker runtime sees to them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from typing import Any

from logqueue.cli import output
from logqueue.cli.connection import url_of
from logqueue.worker import Job, Reject, RetryLater

KILL_S = 1.5
"""How long a program may run after SIGTERM; shorter than the runtime waits."""

PIPE_END_S = 1.0
"""How long a grandchild may keep the pipes open once the program itself has ended."""

ERROR_BYTES_MAX = 2000


class Programs:
    """Runs the program, once per job.

    Attributes:
        done: Jobs that it did.
        failed: Runs that failed.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.done = 0
        self.failed = 0
        self._arguments = arguments

    async def run(self, job: Job) -> None:
        """Do a job.

        Raises:
            RetryLater: The program failed, and the job is to be tried again.
            Reject: It failed, and the job is not.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._arguments.timeout):
                status, message = await self._status(job)
        except TimeoutError:
            status, message = None, f"took longer than {self._arguments.timeout:g} s"
        if status == 0:
            self.done += 1
            self._report(job, "acked", status, began)
            return
        self.failed += 1
        is_rejected = status in self._arguments.reject_on
        self._report(job, "rejected" if is_rejected else "failed", status, began)
        error = ": ".join(part for part in (_how(status), message) if part)
        if is_rejected:
            raise Reject(error)
        output.say(f"logqueue work: job {job.seq} failed: {output.printable(error)}")
        raise RetryLater(reason=error)

    def _report(self, job: Job, outcome: str, status: int | None, began: float) -> None:
        if self._arguments.json:
            facts = {"queue": job.queue, "seq": job.seq, "deliveries": job.deliveries}
            took = round(time.monotonic() - began, 3)
            output.json_line(
                {**facts, "outcome": outcome, "status": status, "seconds": took}, at_once=True
            )

    async def _status(self, job: Job) -> tuple[int, str]:
        """Run the program to its end: its exit status, and the end of its stderr."""
        process = await asyncio.create_subprocess_shell(
            self._arguments.program,
            stdin=asyncio.subprocess.PIPE,
            # With --json, stdout is ours.
            stdout=sys.stderr.fileno() if self._arguments.json else None,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self._variables(job)},
            # A Ctrl-C in the terminal is for us: we let programs come to their end.
            start_new_session=True,
        )
        listening = asyncio.ensure_future(_pass_on(process))
        try:
            await _feed(process, self._payload(job))
            status = await process.wait()
            await asyncio.wait((listening,), timeout=PIPE_END_S)
            return status, listening.result() if listening.done() else ""
        finally:
            await _end(process)
            listening.cancel()

    def _payload(self, job: Job) -> bytes:
        if self._arguments.raw and isinstance(job.data, str):
            return job.data.encode()
        return output.to_json(job.data).encode() + b"\n"

    def _variables(self, job: Job) -> dict[str, str]:
        """What the program can know about its job, and about the server for calls of its own."""
        shown: dict[str, Any] = {
            "QUEUE": job.queue,
            "SEQ": job.seq,
            "DELIVERIES": job.deliveries,
            "TAG": job.tag,
            "KEY": job.key,
            "META": None if job.meta is None else output.to_json(job.meta),
            "TS": job.ts,
            "DEADLINE": job.deadline,
            "LEASE_ID": job.lease_id,
            "LAST_ERROR": job.last_error,
            "URL": url_of(self._arguments),
            "TOKEN": self._arguments.token,
        }
        return {
            f"LOGQUEUE_{name}": str(value)
            for name, value in shown.items()
            if value is not None and "\0" not in str(value)
        }


def _how(status: int | None) -> str:
    """How a program ended that did not succeed; nothing if it was made to."""
    if status is None:
        return ""
    return f"signal {-status}" if status < 0 else f"exit status {status}"


async def _feed(process: Process, payload: bytes) -> None:
    """Write to the program's stdin; a program need not read it."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(payload)
        await process.stdin.drain()
    process.stdin.close()


async def _pass_on(process: Process) -> str:
    """Pass the program's stderr on to ours; returns its end."""
    assert process.stderr is not None
    last = b""
    while part := await process.stderr.read(65_536):
        sys.stderr.buffer.write(part)
        sys.stderr.flush()
        last = (last + part)[-ERROR_BYTES_MAX:]
    return last.decode("utf-8", "replace").strip()


async def _end(process: Process) -> None:
    """See to it that nothing of the program is left: first asked, then killed."""
    if process.returncode is None:
        _signal(process)
        try:
            async with asyncio.timeout(KILL_S):
                await asyncio.shield(process.wait())
        except TimeoutError:
            _signal(process, is_last=True)
            await process.wait()


def _signal(process: Process, *, is_last: bool = False) -> None:
    """Ask the program and all that it started to end; the last time without a choice."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":  # no signals, no groups of processes
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL if is_last else signal.SIGTERM)
