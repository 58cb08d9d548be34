"""What a run says while it measures: a bar on a terminal, plain lines everywhere else.

Owns: the form of the progress. Must not know: what is measured.
"""

from __future__ import annotations

from typing import Self, TextIO

from rich import progress
from rich.console import Console


class Progress:
    """A bar over the measurements of a run, and lines above it."""

    def __init__(self, out: TextIO, steps: int) -> None:
        self._console = Console(file=out, highlight=False, soft_wrap=True)
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal or not steps,
        )
        self._task = self._bar.add_task("", total=steps)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def begin(self, what: str) -> None:
        """The next step is under way."""
        self._bar.update(self._task, description=what)
        if self._bar.disable:
            self.tell(what)

    def end(self) -> None:
        """A step is done."""
        self._bar.advance(self._task)

    def tell(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False)
