"""Two versions in one run: turns, ratios and verdicts; never how fast anything is."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from bench import compare
from bench.load import LoadFailed
from bench.paired import Ratio, ratio
from bench.progress import Progress
from bench.rows import QUICK, Reading, Row
from bench.session import Session
from logqueue.demo.server import DemoServer, ServerFailed
from tests.house import ROOT

BENCH = (sys.executable, "-m", "bench")


def test_a_ratio_is_above_one_where_the_new_side_is_better() -> None:
    rates = ratio([100.0, 200.0] * 3, [200.0, 400.0] * 3, more_is_better=True)
    times = ratio([100.0, 200.0] * 3, [50.0, 100.0] * 3, more_is_better=False)
    assert rates is not None and times is not None
    for found in (rates, times):
        assert (found.middle, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize(("pairs", "beyond"), [(6, 0), (8, 3), (10, 8), (20, 52)])
def test_the_interval_is_that_of_wilcoxon(pairs: int, beyond: int) -> None:
    """The counts are those of tables of the signed-rank test, two-sided at 5 %."""
    logs = [number**1.5 / 100 for number in range(pairs)]
    found = ratio([1.0] * pairs, [math.exp(one) for one in logs], more_is_better=True)
    means = sorted((a + b) / 2 for n, a in enumerate(logs) for b in logs[n:])
    assert found is not None
    assert math.log(found.low) == pytest.approx(means[beyond])
    assert math.log(found.high) == pytest.approx(means[-1 - beyond])


def test_a_single_spoilt_pair_changes_little() -> None:
    found = ratio([1.0] * 20, [2.0] * 19 + [0.001], more_is_better=True)
    assert found is not None and found.middle == pytest.approx(2.0)
    assert found.verdict(0.05) == "faster"


def test_few_pairs_say_nothing_for_sure_and_zero_has_no_ratio() -> None:
    alone = ratio([10.0], [1.0], more_is_better=True)
    assert alone is not None and (alone.low, alone.high) == (0.0, math.inf)
    assert alone.middle == pytest.approx(0.1) and alone.verdict(0.05) == ""
    most = ratio([1.0, 1.0, 0.0], [3.0, 3.0, 1.0], more_is_better=True)
    assert most is not None and most.middle == pytest.approx(3.0)
    assert ratio([0.0, 0.0, 1.0], [1.0, 1.0, 1.0], more_is_better=False) is None
    assert ratio([], [], more_is_better=True) is None


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Ratio(0.8, 0.7, 0.9), "slower"),
        (Ratio(0.8, 0.7, 0.96), ""),
        (Ratio(1.2, 1.1, 1.3), "faster"),
        (Ratio(1.2, 1.04, 1.3), ""),
    ],
)
def test_a_verdict_needs_the_whole_interval(found: Ratio, verdict: str) -> None:
    assert found.verdict(0.05) == verdict


def test_both_versions_take_turns_and_what_got_worse_is_named(tmp_path: Path) -> None:
    old, turns = tmp_path / "old", list[bool]()

    def measured(session: Session) -> list[Row]:
        is_old = session.code_dir == old
        turns.append(is_old)
        noise = 1 + len(turns) / 100
        rate, delay = Row("rate", "rate", "jobs/s"), Row("delay", "delay", "ms")
        rate.add(Reading((100 if is_old else 50) * noise, (10 if is_old else 30) * noise, ""))
        delay.values.append((8 if is_old else 4) * noise)
        return [rate, delay]

    progress = Progress(io.StringIO(), 6)
    session = Session(QUICK, tmp_path / "results", progress)
    by_name: dict[str, compare.Figure] = {}
    try:
        compare.compare([("it", measured)], old, 6, session, progress, by_name)
    finally:
        session.close()
    figures = [*by_name.values()]
    assert turns == [True, False, False, True] * 3, "each goes first as often as the other"
    assert session.code_dir is None
    assert {figure.name: len(figure.old) for figure in figures} == {
        "rate": 6,
        "rate:cpu": 6,
        "delay": 6,
    }
    assert compare.slower(figures, 0.05) == ["rate", "rate:cpu"]
    verdicts = {
        figure["name"]: figure["verdict"]
        for figure in json.loads(compare.for_machine(figures, 0.05, {}))["figures"]
    }
    assert verdicts == {"rate": "slower", "rate:cpu": "slower", "delay": "faster"}
    out = io.StringIO()
    compare.render(figures, 0.05, {"old": "old"}, out)
    assert "slower" in out.getvalue() and "server CPU per request" in out.getvalue()


def test_a_run_cut_short_keeps_its_whole_pairs(tmp_path: Path) -> None:
    turns = 0

    def measured(session: Session) -> list[Row]:
        nonlocal turns
        turns += 1
        if turns == 4:
            raise SystemExit(130)
        return [Row("delay", "delay", "ms", values=[1.0])]

    progress = Progress(io.StringIO(), 3)
    session = Session(QUICK, tmp_path / "results", progress)
    figures: dict[str, compare.Figure] = {}
    try:
        with pytest.raises(SystemExit):
            compare.compare([("it", measured)], tmp_path, 3, session, progress, figures)
    finally:
        session.close()
    assert (figures["delay"].old, figures["delay"].new) == ([1.0], [1.0])


def test_the_older_code_is_a_folder_or_a_revision(tmp_path: Path) -> None:
    assert compare.code_of(str(ROOT), tmp_path / "x") == ROOT
    with pytest.raises(LoadFailed, match="'no-such-thing' is neither a checkout nor a revision"):
        compare.code_of("no-such-thing", tmp_path / "y")
    if not (ROOT / ".git").exists():
        pytest.skip("not a repository")
    unpacked = compare.code_of("HEAD", tmp_path / "z")
    assert (unpacked / "logqueue" / "__main__.py").is_file()


def test_a_server_runs_the_code_of_its_folder(tmp_path: Path) -> None:
    package = tmp_path / "older" / "logqueue"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("raise SystemExit(f'another server: {__file__}')")
    server = DemoServer(tmp_path / "data", tmp_path, tmp_path / "older")
    with pytest.raises(ServerFailed, match=f"another server: {package}"):
        server.start()


def test_a_comparison_runs_and_ends_with_a_report(tmp_path: Path) -> None:
    results = tmp_path / "results"
    flags = ("--quick", "--rounds", "1", "--only", "diff-head", "--json", "--dir", str(results))
    ended = subprocess.run(
        [*BENCH, "--compare", str(ROOT), *flags],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    names = [figure["name"] for figure in report["figures"]]
    assert names == ["diff-head", "diff-head:cpu"] and report["pairs"] == 1
    assert not any(results.iterdir())


def test_only_rows_of_the_server_are_compared() -> None:
    for arguments, problem in (
        (("--only", "help-time"), "--compare needs rows of the server alone"),
        (("--rounds", "0"), "--rounds 0: must be at least 1"),
    ):
        ended = subprocess.run(
            [*BENCH, "--compare", "HEAD", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 2 and problem in ended.stderr
