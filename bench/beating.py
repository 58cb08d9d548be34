"""`logqueue serve` with a heartbeat in its event loop: how long the loop was away, beat by beat.

Owns: the beats and the file they lie in. Run as `python -m bench.beating FILE serve ...`; all that
is behind FILE is the command line of logqueue. Must not know: what is being measured.
"""

from __future__ import annotations

import asyncio
import mmap
import runpy
import struct
import sys
import time
from pathlib import Path
from typing import NamedTuple

from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.runtime import Runtime

BEAT_S = 0.001
_BEATS_MAX = 1 << 20
_COUNT = struct.Struct("<Q")
_BEAT = struct.Struct("<ddd")


class Beat(NamedTuple):
    """One beat.

    Attributes:
        at: `time.perf_counter()` when it came; the same clock in all processes of a machine.
        late_s: How much later than it should have.
        cpu_s: Processor time that the loop's thread took meanwhile; what is late beyond that, other
            processes have had.
    """

    at: float
    late_s: float
    cpu_s: float


class Beats:
    """The beats of one server, in memory that both sides see."""

    def __init__(self, path: Path) -> None:
        """Make the file if it is not there."""
        size = _COUNT.size + _BEAT.size * _BEATS_MAX
        with path.open("a+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)

    def add(self, beat: Beat) -> None:
        """Note a beat; the oldest goes when there is no room."""
        (count,) = _COUNT.unpack_from(self._map)
        _BEAT.pack_into(self._map, _COUNT.size + _BEAT.size * (count % _BEATS_MAX), *beat)
        _COUNT.pack_into(self._map, 0, count + 1)

    def since(self, time_s: float) -> list[Beat]:
        """The beats that came after a time, the latest first."""
        (count,) = _COUNT.unpack_from(self._map)
        found: list[Beat] = []
        for number in range(count - 1, max(count - _BEATS_MAX, 0) - 1, -1):
            place = _COUNT.size + _BEAT.size * (number % _BEATS_MAX)
            beat = Beat(*_BEAT.unpack_from(self._map, place))
            if beat.at < time_s:
                break
            found.append(beat)
        return found

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()


async def _beat_forever(beats: Beats) -> None:
    while True:
        began, cpu = time.perf_counter(), time.thread_time()
        await asyncio.sleep(BEAT_S)
        at = time.perf_counter()
        beats.add(Beat(at, max(at - began - BEAT_S, 0.0), time.thread_time() - cpu))


def main() -> None:
    """Serve, and beat from the moment the server is ready."""
    beats = Beats(Path(sys.argv.pop(1)))
    begin = Runtime.begin
    tasks = []

    def begin_beating(runtime: Runtime) -> Dispatcher:
        dispatcher = begin(runtime)
        tasks.append(dispatcher.loop.create_task(_beat_forever(beats)))
        return dispatcher

    Runtime.begin = begin_beating  # type: ignore[method-assign, assignment]
    runpy.run_module("logqueue", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
