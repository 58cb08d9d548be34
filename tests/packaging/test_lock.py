"""requirements.lock: names, versions and hashes of all that pyproject.toml asks for, no more."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house import page

PIN = re.compile(r"^([a-z0-9][a-z0-9-]*)==([0-9][0-9a-z.!+]*) \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
NOTE = "# The following packages are considered to be unsafe in a requirements file:"


def pins() -> dict[str, str]:
    """Locked versions by name."""
    found = (PIN.match(line) for line in page("requirements.lock").splitlines())
    return {match[1]: match[2] for match in found if match}


def test_it_holds_names_versions_and_hashes_only() -> None:
    for number, line in enumerate(page("requirements.lock").splitlines(), start=1):
        is_known = not line or line == NOTE or PIN.match(line) or HASH.match(line)
        assert is_known, f"requirements.lock:{number}: {line}; write it with: make lock"


def test_every_pin_has_a_hash() -> None:
    lines = page("requirements.lock").splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if PIN.match(line):
            assert HASH.match(following), line


def test_it_answers_every_requirement_of_the_project() -> None:
    pyproject = tomllib.loads(page("pyproject.toml"))
    wanted = [
        *pyproject["project"]["dependencies"],
        *pyproject["project"]["optional-dependencies"]["dev"],
        *pyproject["build-system"]["requires"],
    ]
    locked = pins()
    for text in wanted:
        requirement = Requirement(text)
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{text} is not locked; run: make lock"
        assert requirement.specifier.contains(version), f"{text}, locked {version}; run: make lock"
