"""Every report as SQL, with the relations that it is made from.

Owns: the whole of them, the names in them, their columns as the tables have them. Must not
know: who runs them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.reports.queries import explaining
from logqueue.pipeline.reports.queries.by_tag import by_tag
from logqueue.pipeline.reports.queries.dialect import Dialect
from logqueue.pipeline.reports.queries.of_jobs import of_jobs
from logqueue.pipeline.reports.queries.over_time import over_time
from logqueue.pipeline.reports.queries.sources import ReportScope, sources

_NAME = re.compile(r"\$(\w+)")


READ_BY = {"report_explanations": explaining.READS}
"""What reports read that consist of several texts, each chosen by the answer to the last."""


def filled(text: str, names: Mapping[str, str]) -> str:
    """A text with the names that relations have in the engine."""
    return _NAME.sub(lambda match: names[match[1]], text)


@dataclass(frozen=True)
class Definitions:
    """The SQL of reports and relations, by name, in one dialect.

    A text names others as `$name`. `$raw_jobs` and `$raw_attempts` have no text: they are the
    tables of a lifecycle run.
    """

    texts: Mapping[str, str]
    dialect: Dialect

    @classmethod
    def of(cls, scope: ReportScope, dialect: Dialect) -> Definitions:
        """All of them, for one run."""
        texts = {
            **sources(scope, dialect),
            **over_time(scope, dialect),
            **of_jobs(scope, dialect),
            **by_tag(scope, dialect),
        }
        return cls(texts, dialect)

    def needed(self, *names: str) -> dict[str, int]:
        """The relations that these reports are made from, each after those that it needs itself,
        and how often the others read it."""
        found: dict[str, int] = {}
        ordered: list[str] = []

        def visit(name: str) -> None:
            text = READ_BY.get(name) or self.texts[name]
            for other, times in Counter(_NAME.findall(text)).items():
                if other not in self.texts:
                    continue
                if other not in found:
                    found[other] = 0
                    visit(other)
                    ordered.append(other)
                found[other] += times

        for name in names:
            visit(name)
        return {name: found[name] for name in ordered}

    def text(self, name: str, names: Mapping[str, str]) -> str:
        """The SQL of a relation, with the names that other relations have in the engine."""
        return filled(self.texts[name], names)

    def table(self, kind: TableKind, names: Mapping[str, str]) -> str:
        """The SQL of a report, with the columns and types of its table, in no order."""
        columns = []
        for column in kind.columns:
            name = self.dialect.name(column.name)
            is_time = column.type == "TIMESTAMP"
            value = f"CAST({name} AS {'BIGINT' if is_time else column.type})"
            columns.append(f"{self.dialect.timestamp(value) if is_time else value} AS {name}")
        return f"SELECT {', '.join(columns)} FROM ({self.text(kind.name, names)}) AS made"
