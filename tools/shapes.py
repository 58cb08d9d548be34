"""Writes the package of shapes: `make generate`.

Owns: what logqueue/shapes/__init__.py offers, which is what its modules define. Imports nothing of
ours: what does may need the names that this writes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "logqueue/shapes/__init__.py"


def package() -> str:
    """The package of shapes: what its modules define, under its own docstring."""
    head, start, _ = PACKAGE.read_text("utf-8").partition("from __future__ import annotations\n")
    lines, public = [], set()
    for file in sorted(PACKAGE.parent.glob("[a-z]*.py")):
        names = sorted(defined(file), key=str.casefold)
        public |= {*names}
        lines.append(f"from logqueue.shapes.{file.stem} import (")
        lines += [*(f"    {name}," for name in names), ")"]
    told = [f'    "{name}",' for name in sorted(public)]
    return "\n".join([head + start, *lines, "", "__all__ = [", *told, "]"]) + "\n"


def defined(file: Path) -> Iterator[str]:
    """The public names that a module defines."""
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def main() -> None:
    """Write the package."""
    PACKAGE.write_text(package(), "utf-8")


if __name__ == "__main__":
    main()
