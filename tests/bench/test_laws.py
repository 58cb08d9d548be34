"""Growth laws of the pipeline: how costs relate, by themselves; one tiny run of the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.laws.__main__ import ROWS_PER_JOB, lines_of
from bench.laws.runs import Run


def test_what_further_rows_cost_leaves_out_what_starting_costs() -> None:
    taken = [
        (jobs, Run(wall_s=1.0, cpu_s=2.0 + jobs * ROWS_PER_JOB / 1e6, driver_mb=100.0))
        for jobs in (10_000, 100_000, 1_000_000)
    ]
    first, second, third = lines_of(taken)
    assert "cpu_us_per_further_row" not in first and "cost_ratio" not in second
    assert (second["cpu_us_per_further_row"], third["cpu_us_per_further_row"]) == (1.0, 1.0)
    assert (third["cost_ratio"], third["memory_ratio"]) == (1.0, 1.0)


def test_a_tiny_run_gives_a_line_per_size(tmp_path: Path) -> None:
    words = ["--only", "audit", "--jobs", "50", "--dir", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "bench.laws", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = json.loads(ended.stdout)["lines"]
    assert [(line["job"], line["engine"], line["jobs"]) for line in lines] == [
        ("audit", "duckdb", 50)
    ]
    assert all(line["driver_mb"] > 10 for line in lines)
