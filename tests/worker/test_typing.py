"""What a type checker says about sends: wrong arguments are found before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

PROGRAM = """
from logqueue.worker import App

app = App()

@app.task(queue="thumbnails")
async def make_thumbnail(src: str, size: int) -> None: ...

@app.task(queue="thumbnails")
def resize(src: str, size: int = 10) -> int:
    return size

async def main() -> None:
    {line}
"""

CASES = [
    ('make_thumbnail.send("a.png", size=256)', ""),
    ('await make_thumbnail.send_async("a.png", 256)', ""),
    ('make_thumbnail.with_options(delay=5.0).send("a.png", size=256)', ""),
    ('resize.send("a.png")', ""),
    ('n: int = resize("a.png")', ""),
    ('await make_thumbnail("a.png", 256)', ""),
    ('make_thumbnail.send("a.png", size="big")', "[arg-type]"),
    ('make_thumbnail.send("a.png")', "[call-arg]"),
    ('make_thumbnail.send("a.png", 1, 2)', "[call-arg]"),
    ('make_thumbnail.send("a.png", sise=256)', "[call-arg]"),
    ("await make_thumbnail.send_async(1, 256)", "[arg-type]"),
    ("make_thumbnail.with_options(delay=5.0).send(1, size=256)", "[arg-type]"),
    ('make_thumbnail.with_options(delay="soon")', "[arg-type]"),
    ('resize.message("a.png", size=None)', "[arg-type]"),
    ('text: str = resize("a.png")', "[assignment]"),
]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says about each case; asked once for all, since a start costs seconds."""
    folder = tmp_path_factory.mktemp("typed")
    files = []
    for number, (line, _) in enumerate(CASES):
        files.append(folder / f"case{number}.py")
        files[-1].write_text(PROGRAM.format(line=line))
    out, err, _ = api.run(
        ["--strict", "--no-error-summary", "--cache-dir", str(folder / "cache"), *map(str, files)]
    )
    assert not err, err
    assert all(Path(line.partition(":")[0]).name.startswith("case") for line in out.splitlines())
    return [
        "\n".join(line for line in out.splitlines() if f"case{number}.py" in line)
        for number in range(len(CASES))
    ]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[line for line, _ in CASES])
def test_7_mypy_rejects_a_wrong_argument_to_send(verdicts: list[str], number: int) -> None:
    said, wanted = verdicts[number], CASES[number][1]
    if wanted:
        assert wanted in said
    else:
        assert said == ""
