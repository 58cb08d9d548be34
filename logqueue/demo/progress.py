"""What the demo says while it runs: a bar on a terminal, plain lines everywhere else.

Owns: the form of the progress. Must not know: what makes it go on.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 1.0


class Narrator:
    """Tells about events and about how many of the jobs are done."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._plain = not self._console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=self._plain,
        )
        self._task = self._bar.add_task("jobs", total=None, note="", visible=False)
        self._jobs = 0
        self._next_line = 0.0
        self._step = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def event(self, text: str) -> None:
        """Something worth a line of its own."""
        self._console.print(text, soft_wrap=True, markup=False)

    def step(self, text: str) -> None:
        """One step of what has no count: the bar says it, or a line when it is a new one."""
        if self._plain and text != self._step:
            self.event(f"  {text}")
        self._step = text
        self._bar.update(self._task, description=text, note="", total=None, visible=True)

    def expect(self, jobs: int) -> None:
        """From now on this many jobs are to be done."""
        self._jobs = jobs
        self._bar.update(self._task, total=jobs, visible=True)

    def done(self, jobs: int, in_flight: int) -> None:
        """So many are done by now."""
        note = f"{in_flight} in flight"
        self._bar.update(self._task, completed=jobs, note=note)
        if self._plain and (time.monotonic() >= self._next_line or jobs == self._jobs):
            self._next_line = time.monotonic() + LINE_EVERY_S
            self.event(f"  {jobs} of {self._jobs} jobs done, {note}")
