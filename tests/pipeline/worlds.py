"""Logs of the real core, put where an audit reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from logqueue.pipeline.engines.duckdb.audit.job import run_audit
from logqueue.pipeline.reading.place import InputPlace
from tests.core.world import World


def spill(world: World, to: Path) -> Path:
    """End a life in order, and write its logs to a directory."""
    world.engine.shut_down()
    for name, data in world.fs.contents().items():
        if name.endswith(".wal"):
            path = to / Path(name).relative_to("data")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return to


def audited(data: Path, rules: str | None = None) -> list[dict[str, Any]]:
    """What an audit finds in a data directory."""
    run_audit(InputPlace(path=str(data)), str(data / "findings"), rules=rules)
    lines = (data / "findings" / "audit_findings.json").read_text().splitlines()
    return [json.loads(line) for line in lines]
