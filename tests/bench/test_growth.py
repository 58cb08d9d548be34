"""Growth: fits and sizes by themselves, one tiny run of curves; never how steep anything is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.growth.__main__ import HEADS, lines_of, markdown, picture
from bench.growth.curves import Growth, Line, sizes_to
from bench.growth.fit import fit
from bench.load import LoadFailed
from bench.plot import Series, bars, short

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("exponent", [0.0, 1.0, -0.5])
def test_the_fit_finds_a_power_law(exponent: float) -> None:
    law = fit([(size, 7 * size**exponent) for size in (1, 10, 1000)])
    assert law is not None
    assert (law.exponent, law.factor, law.spread) == pytest.approx((exponent, 7.0, 0.0))


def test_the_fit_shows_how_far_points_are_off() -> None:
    law = fit([(1, 1.0), (10, 2.0), (100, 1.0)])
    assert law is not None and law.exponent == pytest.approx(0.0)
    assert 0.3 < law.spread < 0.5


def test_one_size_has_no_slope() -> None:
    assert fit([]) is None and fit([(10, 1.0), (10, 2.0)]) is None


def test_sizes_are_powers_of_ten_and_the_largest() -> None:
    assert sizes_to(2000) == [1, 10, 100, 1000, 2000]
    assert sizes_to(10_000, 1000) == [1000, 10_000]
    with pytest.raises(LoadFailed, match="must be at least 1,000, not 5"):
        sizes_to(5, 1000)


def grown() -> list[Growth]:
    """Two costs that were measured, one of them steep."""
    flat = Line("claim", "µs", 0, [(1000, 100.0), (10_000, 100.0)])
    steep = Line("ready", "s", 1, [(1000, 0.1), (10_000, 1.0)])
    return [Growth("Waiting jobs", "jobs", [flat, steep], stopped="memory < 4 GB")]


def test_the_table_of_growth_has_a_line_for_each_cost() -> None:
    assert [line[-2:] for line in lines_of(grown())] == [
        ("0.00 (± 0%)", "≤ 0"),
        ("1.00 (± 0%)", "≤ 1"),
    ]
    text = markdown(grown(), {"processors": 2})
    assert f"| {' | '.join(HEADS)} |" in text
    assert text.count("| Waiting jobs, 1k to 10k |") == 2
    assert text.endswith("- Waiting jobs: memory < 4 GB.\n")


def test_plots_are_whole_pictures() -> None:
    drawn = ElementTree.fromstring(picture(grown()))
    assert drawn.tag == f"{SVG}svg" and len(drawn.findall(f".//{SVG}circle")) == 4
    legend = [text.text for text in drawn.iter(f"{SVG}text")]
    assert "claim ∝ size^0.00" in legend and "ready ∝ size^1.00" in legend
    two = bars("a < b", ["x", "y"], [Series("us", [1.0, 5e6]), Series("them", [None, 3.0])], "/s")
    drawn = ElementTree.fromstring(two)
    assert drawn.findtext(f"{SVG}title") == "a < b"
    assert "–" in [text.text for text in drawn.iter(f"{SVG}text")], "a gap is shown as one"


def test_figures_in_plots_are_short() -> None:
    shown = [short(value) for value in (0.25, 12.0, 999.0, 1000.0, 3456.0, 1.2e6)]
    assert shown == ["0.25", "12", "999", "1k", "3.46k", "1.2M"]


def test_a_quick_run_draws_curves(tmp_path: Path) -> None:
    data = tmp_path / "data"
    flags = ("--quick", "--json", "--only", "readers", "--dir", str(data))
    ended = subprocess.run(
        [sys.executable, "-m", "bench.growth", *flags],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = json.loads(ended.stdout)["lines"]
    assert [(line["over"], line["cost"]) for line in lines] == [
        ("watchers", "delivery"),
        ("watchers", "append to delivery, p50"),
    ]
    assert all(len(line["points"]) == 2 and line["fit"] for line in lines)
    assert not any(data.iterdir())
