"""One turn of the event loop is one batch: what was submitted in it is decided together.

Owns: which commands wait for the end of the turn, in which order they are taken, and how many of
them at a time. Must not know: how they are decided, who sent them, how answers look.

Requests that can be read in one turn of the loop are concurrent: none of their senders has had an
answer. So commands of one type on one topic are gathered, in the order in which they came, and
decided at the end of the turn as one cohort: one decision, one frame of the log, one entry in the
barrier. A caller of a command that must see the effect of an earlier one without waiting for its
answer calls `run` in between; commands of one type on one topic keep their order anyway.

No step takes long: a step of the loop decides about `COST_MAX` jobs, or twice as many
records, and the next step continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from logqueue.core import commands as cmd
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Pending

COST_MAX = 500
"""Jobs and requests after which a step of the loop ends."""
AHEAD_COST_MAX = 8 * COST_MAX
"""The same, after which clients that send ahead begin nothing more: all that waits is decided at
once when something must observe it, in a few milliseconds."""
RECORDS_PER_COST = 2
"""Records are taken as a block, and jobs one by one."""
BYTES_PER_COST = 2 << 10
CATCH_UP_STEPS_MAX = 1000
"""Steps that commands wait for what their topic is behind with: producers may be faster."""

Entry = tuple[Any, Pending[Any]]
"""A command, and its answer."""


class Turn:
    """What was submitted and is not decided yet."""

    def __init__(
        self,
        engine: Engine,
        barrier: CommitBarrier,
        loop: asyncio.AbstractEventLoop,
        decide: Callable[[list[Entry], int], None],
    ) -> None:
        """Nothing is waiting.

        Args:
            engine: Has the clock, and knows which topics are behind.
            barrier: Wakes the log.
            loop: The event loop.
            decide: Called with commands of one type on one topic, one at least, and the time.
        """
        self._engine = engine
        self._barrier = barrier
        self._loop = loop
        self._decide = decide
        # Commands, and what each of them costs.
        self._groups: dict[tuple[type[Any], str], tuple[list[Entry], list[int]]] = {}
        self._is_scheduled = False
        self._put_off = 0
        self._cost = 0

    @property
    def is_full(self) -> bool:
        """Whether so much waits that clients that send ahead begin nothing more: else `run` would
        take long."""
        return self._cost >= AHEAD_COST_MAX

    def add(self, command: cmd.Command[Any], pending: Pending[Any]) -> bool:
        """Have a command decided at the end of this turn of the loop; False, and not so, for one
        that is not to wait for that."""
        kind = type(command)
        if kind not in _COST:
            return False
        cost = 1 + _COST[kind](command)
        self._cost += cost
        place = (kind, command.topic)
        group = self._groups.get(place)
        if group is None:
            self._groups[place] = [(command, pending)], [cost]
            if not self._is_scheduled:
                self._is_scheduled = True
                # The loop looks at its sockets once more: requests that come a little later than
                # the first, such as those of clients that were answered together, ride along.
                self._loop.call_soon(self._loop.call_soon, self._end)
        else:
            entries, costs = group
            entries.append((command, pending))
            costs.append(cost)
        return True

    def command_of(self, pending: Pending[Any], topic: str) -> cmd.Command[Any] | None:
        """The command of an answer, if it is the last of its type on its topic that waits for the
        end of the turn."""
        for kind in _COST:
            group = self._groups.get((kind, topic))
            if group is not None and group[0][-1][1] is pending:
                command: cmd.Command[Any] = group[0][-1][0]
                return command
        return None

    def run(self) -> None:
        """Decide all that was submitted so far, however much it is: its effect is needed now."""
        if self._groups:
            now = self._engine.clock.now_ms()
            while self._groups:
                self._next(next(iter(self._groups)), now)

    def _end(self) -> None:
        """Decide what one step may, and have the log begin; the rest is for the next step."""
        self._is_scheduled = False
        if not self._groups:
            return
        now = self._engine.clock.now_ms()
        left = COST_MAX
        may_lag = bool(self._engine.behind or self._engine.lagging)
        barrier = self._barrier
        barrier.wakes_soon = True
        try:
            for place in [*self._groups]:
                if may_lag and self._is_put_off(place[1]):
                    continue
                while left > 0 and place in self._groups:
                    left -= self._next(place, now)
        finally:
            if self._engine.behind:
                # Copies of routers, which come at the end of this turn, ride the same sync.
                self._loop.call_soon(barrier.wake_log)
            else:
                # What has changed is read for its readers while the log works.
                barrier.wake_log()
        if self._groups:
            self._is_scheduled = True
            self._loop.call_soon(self._end)
        else:
            self._put_off = 0

    def _is_put_off(self, topic: str) -> bool:
        """Whether the topic must catch up before; a little of that is done."""
        engine = self._engine
        if self._put_off >= CATCH_UP_STEPS_MAX or not engine.is_far_behind(topic):
            return False
        self._put_off += 1
        engine.catch_up(topic)
        return True

    def _next(self, place: tuple[type[Any], str], now: int) -> int:
        """Decide the first of a group, as many as one step may; what they cost."""
        group, costs = self._groups[place]
        cost = taken = 0
        for more in costs:
            if taken and cost + more > COST_MAX:
                break
            cost += more
            taken += 1
        if taken == len(group):
            del self._groups[place]
        else:
            self._groups[place] = group[taken:], costs[taken:]
            group = group[:taken]
        self._cost -= cost
        try:
            self._decide(group, now)
        except Exception as error:
            # A fault of the server: who is not answered yet gets to know, and the others go on.
            for _, pending in group:
                if not pending.is_decided and pending.leave is None:
                    pending.refuse(error)
        return cost


def _cost_of_append(command: cmd.Append) -> int:
    return -(-command.count // RECORDS_PER_COST) + len(command.block) // BYTES_PER_COST


def _cost_of_claim(command: cmd.ClaimJobs) -> int:
    return command.claimers[0].jobs_max


def _cost_of_ack(command: cmd.AckJobs) -> int:
    return len(command.seqs) + sum(map(_cost_of_append, command.append))


def _cost_of_settling(command: cmd.NackJobs | cmd.RejectJobs | cmd.ExtendLeases) -> int:
    return len(command.seqs)


_COST: dict[type[Any], Callable[[Any], int]] = {
    cmd.Append: _cost_of_append,
    cmd.ClaimJobs: _cost_of_claim,
    cmd.AckJobs: _cost_of_ack,
    cmd.NackJobs: _cost_of_settling,
    cmd.RejectJobs: _cost_of_settling,
    cmd.ExtendLeases: _cost_of_settling,
}
"""The commands that wait for the end of the turn, and what each costs beside itself."""
