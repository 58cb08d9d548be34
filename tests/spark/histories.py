"""Rows of histories as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from logqueue.pipeline.lifecycle import tables

Row = Mapping[str, Any]


def table_of(rows: Iterable[Row], kind: tables.TableKind) -> pa.Table:
    """Rows with times in ms since the epoch; columns that they lack are null."""
    listed = list(rows)
    columns = []
    for field in kind.arrow():
        values = [row.get(field.name) for row in listed]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.timestamp("ms", tz="UTC")).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=kind.arrow())
