"""Records of two places held against each other: by hashes of blocks, and one by one where those
differ.

Owns: the hashes, which DuckDB makes, and their comparison. Must not know: what differences mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from logqueue.pipeline.audit.comparison import HERE, OTHER, THERE, ComparedTopic, PlaceComparison
from logqueue.pipeline.audit.job_rows import codes_of
from logqueue.pipeline.audit.verdicts import ranges_of
from logqueue.pipeline.engines.duckdb.audit.tables import PlaceTables, TableTask
from logqueue.pipeline.engines.duckdb.workers import WorkerPool

COLUMNS: Final = (
    "topic", "seq", "ts", "tag", "key", "node", "meta", "data", "not_before", "log_id",
)  # fmt: skip
BLOCK_BITS: Final = 10
_HASH: Final = "hash(seq, epoch_us(ts), tag, key, node, meta, data, epoch_us(not_before))"
_BLOCKS: Final = f"""
    select log_id, any_value(topic) as topic, seq >> {BLOCK_BITS} as block, count(*) as n,
           bit_xor({_HASH}) as digest, max(seq) as last
    from batch group by log_id, seq >> {BLOCK_BITS}
"""
_RECORDS: Final = f"""
    select log_id, seq, count(*) as n, bit_xor({_HASH}) as digest
    from batch group by log_id, seq
"""


class Hashed(NamedTuple):
    """A task over records that are hashed; with `wanted`, one by one and only in some blocks."""

    task: TableTask
    wanted: Mapping[str, frozenset[int]] | None = None

    def table(self) -> pa.Table:
        """The hashes."""
        with duckdb.connect(config={"threads": 1}) as connection:
            parts = [*self._parts(connection)]
        return pa.concat_tables(parts) if parts else None

    def _parts(self, connection: duckdb.DuckDBPyConnection) -> Iterator[pa.Table]:
        for batch in self.task.batches():
            if self.wanted is not None:
                batch = _within(batch, self.wanted)
            if batch.num_rows:
                connection.register("batch", batch)
                query = _BLOCKS if self.wanted is None else _RECORDS
                yield connection.sql(query).to_arrow_table()


def _within(batch: pa.RecordBatch, wanted: Mapping[str, frozenset[int]]) -> pa.RecordBatch:
    codes, ids = codes_of(batch.column("log_id"))
    blocks = batch.column("seq").to_numpy(zero_copy_only=False) >> BLOCK_BITS
    keep = np.zeros(batch.num_rows, np.bool_)
    for code, log_id in enumerate(ids):
        if log_id in wanted:
            among = np.isin(blocks, np.fromiter(wanted[log_id], np.int64, len(wanted[log_id])))
            keep |= (codes == code) & among
    return batch.filter(pa.array(keep))


@dataclass(frozen=True, slots=True)
class _Places:
    pool: WorkerPool
    here: PlaceTables
    there: PlaceTables

    def hashed(self, which: str, wanted: Mapping[str, frozenset[int]] | None = None) -> pa.Table:
        """Hashes of one place."""
        tables = self.here if which == HERE else self.there
        items = [Hashed(task, wanted) for task in tables.records(COLUMNS)]
        size = sum(item.task.size for item in items)
        parts = [*self.pool.map(Hashed.table, items, size, len(items))]
        parts = [part for part in parts if part is not None]
        return pa.concat_tables(parts) if parts else _empty(wanted is None)


def _empty(is_blocks: bool) -> pa.Table:
    texts = ("log_id", "topic") if is_blocks else ("log_id",)
    names = ("block", "n", "digest", "last") if is_blocks else ("seq", "n", "digest")
    fields = [(name, pa.string()) for name in texts] + [(name, pa.int64()) for name in names]
    return pa.schema(fields).empty_table()


def compare_places(pool: WorkerPool, here: PlaceTables, there: PlaceTables) -> PlaceComparison:
    """Hold the records of two places against each other."""
    places = _Places(pool, here, there)
    found = PlaceComparison(gaps_here=here.gaps(), gaps_there=there.gaps())
    with duckdb.connect() as connection:
        for which in (HERE, THERE):
            connection.register("parts", places.hashed(which))
            connection.execute(
                f"create table {which}_blocks as select log_id, any_value(topic) as topic, block, "
                "sum(n) as n, bit_xor(digest) as digest, max(last) as last from parts "
                "group by log_id, block"
            )
            connection.unregister("parts")
        for log_id, topic, last_here, last_there in connection.execute(_ENDS).fetchall():
            found.topics[log_id] = ComparedTopic(topic, last_here, last_there)
        wanted: dict[str, set[int]] = {}
        for log_id, block in connection.execute(_UNEQUAL).fetchall():
            wanted.setdefault(log_id, set()).add(block)
        if wanted:
            chosen = {log_id: frozenset(blocks) for log_id, blocks in wanted.items()}
            _one_by_one(connection, places, chosen, found)
    return found


_ENDS: Final = """
    with ends as (
        select log_id, topic, last as here, null as there from here_blocks union all
        select log_id, topic, null, last from there_blocks
    )
    select log_id, any_value(topic), max(here), max(there) from ends group by log_id order by 1
"""
_UNEQUAL: Final = """
    select coalesce(h.log_id, t.log_id), coalesce(h.block, t.block)
    from here_blocks h full join there_blocks t on h.log_id = t.log_id and h.block = t.block
    where h.n is distinct from t.n or h.digest is distinct from t.digest
"""
_DIFFERENT: Final = """
    select coalesce(h.log_id, t.log_id) as log_id, coalesce(h.seq, t.seq) as seq,
           case when t.n is null then 0 when h.n is null then 1 else 2 end as kind
    from here_records h full join there_records t on h.log_id = t.log_id and h.seq = t.seq
    where h.n is distinct from t.n or h.digest is distinct from t.digest
    order by log_id, kind, seq
"""


def _one_by_one(
    connection: duckdb.DuckDBPyConnection,
    places: _Places,
    wanted: Mapping[str, frozenset[int]],
    found: PlaceComparison,
) -> None:
    for which in (HERE, THERE):
        connection.register("parts", places.hashed(which, wanted))
        connection.execute(
            f"create table {which}_records as select log_id, seq, sum(n) as n, "
            "bit_xor(digest) as digest from parts group by log_id, seq"
        )
        connection.unregister("parts")
    rows = connection.sql(_DIFFERENT).to_arrow_table()
    codes, ids = codes_of(rows.column("log_id"))
    kinds, seqs = rows.column("kind").to_numpy(), rows.column("seq").to_numpy()
    for code, log_id in enumerate(ids):
        topic = found.topics[log_id]
        for number, kind in enumerate((HERE, THERE, OTHER)):
            differs = seqs[(codes == code) & (kinds == number)]
            if len(differs):
                topic.differences[kind] = ranges_of(differs)
