"""What happened to the jobs of one queue, for rules that look at several of them at once.

Owns: when a job ended, and when a lease of it was over. Must not know: the rules, engines.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from logqueue.pipeline.audit.job_rows import IS_WAITED, KIND, Ints, Mask
from logqueue.pipeline.audit.rules import ENDS

FOREVER: Final = 1 << 62
"""An order later than any."""
_KINDS_MAX: Final = 128


class QueueTables:
    """Rows of several queues, taken apart."""

    def __init__(self, rows: pa.Table) -> None:
        """Sort them by queue.

        Args:
            rows: With the column `log`, the place of the queue.
        """
        logs = rows.column("log").to_numpy()
        order = np.argsort(logs, kind="stable")
        self._rows = rows.take(pa.array(order))
        self._logs = logs[order]

    def of(self, place: int) -> pa.Table:
        """The rows of one queue."""
        low, high = (int(np.searchsorted(self._logs, place, side)) for side in ("left", "right"))
        return self._rows.slice(low, high - low)


class QueueEvents:
    """The lease events of one queue in the order of its jobs.

    Attributes:
        seq, lseq, at, kind, due, lease_ms: As `group_rows.HAPPENED`.
    """

    def __init__(self, rows: pa.Table, dropped: int | None) -> None:
        """Sort them.

        Args:
            rows: As `group_rows.HAPPENED`, of this queue.
            dropped: Order in which the queue was deleted, which ends all its jobs.
        """
        columns = {name: rows.column(name).to_numpy() for name in rows.column_names}
        floors = columns["kind"] == KIND["trimmed"]
        moved = np.argsort(columns["seq"][floors], kind="stable")
        self._floors: Ints = columns["seq"][floors][moved]
        orders = columns["lseq"][floors][moved]
        self._floor_orders: Ints = np.append(
            np.minimum.accumulate(orders[::-1])[::-1], dropped or FOREVER
        )
        kept = np.flatnonzero(~floors)
        order = np.lexsort((columns["kind"][kept], columns["lseq"][kept], columns["seq"][kept]))
        taken = kept[order]
        self.seq, self.lseq, self.at, self.kind, self.due, self.lease_ms, self._reason = (
            columns[name][taken]
            for name in ("seq", "lseq", "at", "kind", "due", "lease_ms", "reason")
        )
        rows_of_ends = np.flatnonzero(self.among(*ENDS))
        self._ended, first = np.unique(self.seq[rows_of_ends], return_index=True)
        self._end_orders: Ints = np.append(self.lseq[rows_of_ends][first], FOREVER)

    def among(self, *names: str) -> Mask:
        """Rows of some kinds."""
        chosen = np.zeros(_KINDS_MAX, np.bool_)
        chosen[[KIND[name] for name in names]] = True
        found: Mask = chosen[self.kind]
        return found

    def ends_of(self, seqs: Ints) -> Ints:
        """The order in which each job ended; `FOREVER` for those that have not."""
        places = np.searchsorted(self._ended, seqs)
        inside = np.minimum(places, max(len(self._ended) - 1, 0))
        has = self._ended[inside] == seqs if len(self._ended) else np.zeros(len(seqs), np.bool_)
        ends = np.where(has, self._end_orders[places], FOREVER)
        floors = self._floor_orders[np.searchsorted(self._floors, seqs)]
        found: Ints = np.minimum(np.minimum(ends, floors), self._floor_orders[-1])
        return found

    def deadline_at(self, row: int, order: int) -> int:
        """The deadline, at a later transaction, of the lease that a row began."""
        deadline = int(self.due[row])
        for place in range(row + 1, len(self.seq)):
            if self.seq[place] != self.seq[row] or self.lseq[place] > order:
                break
            if self.kind[place] == KIND["extended"]:
                deadline = int(self.due[place])
        return deadline

    def frees_after(self, rows: Ints) -> Ints:
        """The order of the next event of the same job that ends its lease, as far as one does."""
        freed = self.among("held", *ENDS)
        freed |= self.among("released") & (self._reason != IS_WAITED)
        count = len(self.seq)
        places = np.where(freed, np.arange(count), count)
        following = np.append(np.minimum.accumulate(places[::-1])[::-1], count)[rows + 1]
        inside = np.minimum(following, count - 1)
        is_same = (following < count) & (self.seq[inside] == self.seq[rows])
        found: Ints = np.where(is_same, self.lseq[inside], FOREVER)
        return found

    def replaced_after(self, seqs: Ints, orders: Ints) -> Ints:
        """The first order after another in which a keyed write gave each job new content."""
        found = np.full(len(seqs), FOREVER, np.int64)
        rows = np.flatnonzero(self.among("replaced"))
        if len(rows):
            known = np.flatnonzero(np.isin(seqs, self.seq[rows]))
            for place in known.tolist():
                mine = self.lseq[rows[self.seq[rows] == seqs[place]]]
                later = mine[mine > orders[place]]
                found[place] = later[0] if len(later) else FOREVER
        return found
