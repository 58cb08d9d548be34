"""What a table is: a name, columns with types, and what they mean.

Owns: the description, and the schemas for Spark and Arrow made from it. Must not know: which tables
there are. pyarrow is imported when an Arrow schema is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logqueue.errors import quoted

if TYPE_CHECKING:
    import pyarrow as pa

STEP = "STRUCT<activity:STRING, at:TIMESTAMP, state:STRING, worker:STRING>"

TOPIC = "topic STRING: name of the topic"
BUCKET = "bucket TIMESTAMP: beginning of the time bucket"
BUCKET_OR_ALL = "bucket TIMESTAMP: beginning of the time bucket; null for the whole range"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: As in the schema.
        type: As Spark's DDL says it.
        note: What it means, for the docs.
    """

    name: str
    type: str
    note: str


@dataclass(frozen=True)
class TableKind:
    """One table.

    Attributes:
        name: Of the table, and of the directory or file that holds it.
        built_by: The job that writes it.
        note: What a row is.
        columns: Key first.
        order: Columns that rows are sorted by where a table is written as a whole.
    """

    name: str
    built_by: str
    note: str
    columns: tuple[Column, ...]
    order: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        """The schema as Spark reads it; every column is nullable."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    def arrow(self) -> pa.Schema:
        """The schema as Arrow has it; every column is nullable."""
        import pyarrow as pa

        return pa.schema([pa.field(c.name, arrow_type(c.type)) for c in self.columns])


def arrow_type(ddl: str) -> pa.DataType:
    """The Arrow type of a Spark type, as Spark itself would give it with time zone UTC.

    Raises:
        ValueError: No table has such a type.
    """
    import pyarrow as pa

    plain: dict[str, Any] = {
        "STRING": pa.string(),
        "BIGINT": pa.int64(),
        "INT": pa.int32(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    }
    if ddl in plain:
        return plain[ddl]
    if ddl == f"ARRAY<{STEP}>":
        return pa.list_(pa.field("element", arrow_type(STEP)))
    if ddl == STEP:
        fields = [part.split(":") for part in STEP[len("STRUCT<") : -1].split(", ")]
        return pa.struct([pa.field(name, plain[kind]) for name, kind in fields])
    raise ValueError(f"no Arrow type is known for {quoted(ddl)}")


def columns(*texts: str) -> tuple[Column, ...]:
    """Columns from lines of "name TYPE: what it means"."""
    made = []
    for line in texts:
        head, _, note = line.partition(": ")
        name, _, kind = head.partition(" ")
        made.append(Column(name, kind, note))
    return tuple(made)
