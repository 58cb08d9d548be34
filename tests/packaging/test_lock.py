"""The locks: names, versions and hashes of all that pyproject.toml asks for, no more."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house import page

LOCKS = ("requirements.lock", "requirements-server.lock")
PIN = re.compile(r"^([a-z0-9][a-z0-9-]*)==([0-9][0-9a-z.!+]*) \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
NOTE = "# The following packages are considered to be unsafe in a requirements file:"


def pins(lock: str) -> dict[str, str]:
    """Locked versions by name."""
    found = (PIN.match(line) for line in page(lock).splitlines())
    return {match[1]: match[2] for match in found if match}


@pytest.mark.parametrize("lock", LOCKS)
def test_it_holds_names_versions_and_hashes_only(lock: str) -> None:
    for number, line in enumerate(page(lock).splitlines(), start=1):
        is_known = not line or line == NOTE or PIN.match(line) or HASH.match(line)
        assert is_known, f"{lock}:{number}: {line}; write it with: make lock"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock: str) -> None:
    lines = page(lock).splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if PIN.match(line):
            assert HASH.match(following), line


@pytest.mark.parametrize("lock", LOCKS)
def test_it_answers_every_requirement_of_the_project(lock: str) -> None:
    pyproject = tomllib.loads(page("pyproject.toml"))
    extras = pyproject["project"]["optional-dependencies"]
    chosen = extras if lock == "requirements.lock" else ["server", "replica"]
    wanted = [
        *pyproject["project"]["dependencies"],
        *(requirement for name in chosen for requirement in extras[name]),
        *pyproject["build-system"]["requires"],
    ]
    locked = pins(lock)
    for text in wanted:
        requirement = Requirement(text)
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{text} is not locked; run: make lock"
        assert requirement.specifier.contains(version), f"{text}, locked {version}; run: make lock"


def test_an_image_runs_what_was_tested() -> None:
    tested, installed = pins("requirements.lock"), pins("requirements-server.lock")
    assert installed.items() <= tested.items()
    assert not {"pyspark", "pytest", "rich", "numpy"} & installed.keys()
