"""The backlog with a row for every bucket: what charts and sums over topics need.

Owns: filling in buckets in which nothing happened. Must not know: how the table came to be, the
page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logqueue.pipeline.reports.queries.shorter import DEPTHS, LAST

if TYPE_CHECKING:
    import pyarrow as pa

COUNTS = DEPTHS[:-1]


def with_idle_buckets(backlog: pa.Table, *, end: int, bucket: int, length: int) -> pa.Table:
    """Each topic from its first row to the end of the range, without holes.

    Depths stay as they were while nothing happens, and the oldest job grows older.

    Args:
        backlog: The table `report_backlog`, or what `shorter` makes of it.
        end: Of the range, ms since the epoch.
        bucket: Length of a bucket of the report, ms.
        length: Length of a bucket in the result, a multiple of it: rows in longer buckets have the
            highest that was at the end of any of the report's buckets.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = ["topic", "bucket", *DEPTHS]
    if not backlog.num_rows:
        return backlog.select(names)
    backlog = backlog.sort_by([("topic", "ascending"), ("bucket", "ascending")])
    parts = []
    ends = pc.run_end_encode(backlog["topic"].combine_chunks()).run_ends.to_pylist()
    for start, stop in zip([0, *ends], ends, strict=False):
        part = backlog.slice(start, stop - start)
        columns = _filled(part, end, bucket, length)
        topics = pa.array([part["topic"][0].as_py()] * len(columns["bucket"]), pa.string())
        kinds = [backlog.schema.field(name).type for name in names]
        arrays = [topics, pa.array(columns["bucket"], pa.timestamp("ms", tz="UTC"))]
        arrays += [pa.array(columns[name]) for name in DEPTHS]
        cast = [array.cast(kind) for array, kind in zip(arrays, kinds, strict=True)]
        parts.append(pa.table(cast, names))
    return pa.concat_tables(parts).replace_schema_metadata(backlog.schema.metadata)


def _filled(rows: pa.Table, end: int, bucket: int, length: int) -> dict[str, Any]:
    """One topic."""
    import numpy as np

    is_coarse = f"{LAST}ready" in rows.column_names
    at = _millis(rows, "bucket")
    first = _millis(rows, "first_bucket") if is_coarse else at
    last = _millis(rows, "last_bucket") if is_coarse else at
    behind = {name: _numbers(rows, f"{LAST}{name}" if is_coarse else name) for name in DEPTHS}
    begin = at[0] - at[0] % length
    place = (at - begin) // length
    count = int(max(place[-1], (end - begin) // length)) + 1
    buckets = begin + np.arange(count, dtype=np.int64) * length
    # Of each bucket, the last row in it or before it, and the one before it.
    latest = np.searchsorted(place, np.arange(count), side="right") - 1
    before = np.concatenate([[-1], latest[:-1]])
    # When a row says that the oldest job began to wait.
    since = np.minimum(last + bucket, end) - behind["oldest_age_ms"]
    opened = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(opened, place, first)
    # What was before the first row still was so at the end of a bucket that began before it.
    carries = (before >= 0) & (opened > buckets)
    made: dict[str, Any] = {"bucket": buckets}
    for name in COUNTS:
        highest = np.zeros(count, dtype=np.int64)
        np.maximum.at(highest, place, _numbers(rows, name))
        kept = np.where(carries, behind[name][before], 0)
        made[name] = np.maximum(highest, kept)
    ages = np.zeros(count, dtype=np.int64)
    np.maximum.at(ages, place, _numbers(rows, "oldest_age_ms"))
    # The last bucket that had ended before the first row came, or before the range did.
    until = np.minimum(np.minimum(opened, buckets + length), end)
    waits = carries & (behind["ready"][before] > 0)
    ages = np.maximum(ages, np.where(waits, until - since[before], 0))
    # Behind a row, until the next one came or the bucket ended.
    following = np.minimum(np.append(first[1:], end), np.minimum(buckets[place] + length, end))
    grown = np.where(behind["ready"] > 0, following - since, 0)
    np.maximum.at(ages, place, grown)
    made["oldest_age_ms"] = ages
    return made


def _numbers(rows: pa.Table, name: str) -> Any:
    import pyarrow as pa

    return rows[name].cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False)


def _millis(rows: pa.Table, name: str) -> Any:
    import pyarrow as pa

    column = rows[name].cast(pa.timestamp("ms", tz="UTC"))
    return column.cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False)
