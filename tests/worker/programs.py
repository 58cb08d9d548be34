"""Worker processes for tests, and the news that their handlers send.

Owns: starting, signalling and ending the processes; the log topic that handlers report to. Must not
know: what is tested.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from logqueue.client import Client
from logqueue.shapes import Record
from tests.house import ROOT

END_S = 60.0
NEWS_S = 240.0
"""For a step of a test on a machine that is very busy."""

PROGRAM = """
import logging, sys
from logqueue.worker import STOP_SIGNALS, run_worker
logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
logging.getLogger("httpx").setLevel(logging.WARNING)
if __name__ == "__main__":
    sys.exit(run_worker("tests.worker.acceptance_app:app", signals=STOP_SIGNALS, **{options!r}))
"""


class Program:
    """One worker process."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output
        self._sent: set[int] = set()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and do not wait."""
        self._sent.add(number)
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def check(self) -> None:
        """Fail if it has ended, but well or by a signal that it was sent."""
        status = self.process.poll()
        if status and -status not in self._sent:
            raise AssertionError(f"the worker ended with status {status}\n{self.output()}")

    def wait(self) -> int:
        """Wait for the end; returns the exit status."""
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end\n{self.output()}") from None

    def output(self) -> str:
        """What it has printed."""
        return self._output.read_text(errors="replace")


class Programs:
    """Worker processes of one test, on queues of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.suite = f"t{secrets.token_hex(4)}"
        self.folder = folder
        self._url = url
        self._started: list[Program] = []
        self._client = Client(url, node="news")
        self._client.put_topic(self.news_topic)
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for program in self._started:
            program.kill()
            if kind is not None:
                print(program.output())
        self._client.close()

    @property
    def queue(self) -> str:
        """The queue of this test."""
        return f"{self.suite}.jobs"

    @property
    def news_topic(self) -> str:
        """Where handlers report."""
        return f"{self.suite}.news"

    def start(self, url: str | None = None, **options: Any) -> Program:
        """Start a worker process with these options of `run_worker`, perhaps by way of a proxy."""
        output = self.folder / f"worker-{len(self._started)}.log"
        environment = {
            **os.environ,
            "LOGQUEUE_URL": url or self._url,
            "NEWS_URL": self._url,
            "ACCEPTANCE_SUITE": self.suite,
            "PYTHONPATH": str(ROOT),
        }
        script = self.folder / "program.py"
        script.write_text(PROGRAM.format(options=options))
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, str(script)],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        program = Program(process, output)
        self._started.append(program)
        return program

    def check(self) -> None:
        """Fail if a worker has ended by itself: what a test waits for would never come."""
        for program in self._started:
            program.check()

    def news(self) -> Iterator[dict[str, Any]]:
        """What handlers reported and was not read yet; waits for more, but not for ever."""
        end = time.monotonic() + NEWS_S
        while time.monotonic() < end:
            self.check()
            for record in self._client.diff(self.news_topic, self._seen, wait_ms=1000).records:
                self._seen = record.seq
                yield {**record.data, "at_ms": record.ts}
        raise AssertionError(f"no such news in {NEWS_S:.0f} s\n{self._outputs()}")

    def _outputs(self) -> str:
        return "\n".join(program.output() for program in self._started)

    def next_news(self, what: str) -> dict[str, Any]:
        """The next report of this kind."""
        return next(item for item in self.news() if item["what"] == what)

    def all_news(self, what: str) -> list[dict[str, Any]]:
        """Every report of this kind so far."""
        records = self._client.read(self.news_topic)
        return [r.data for r in records if isinstance(r, Record) and r.data["what"] == what]
