"""Files of an object store as copies on this machine, for engines that read paths.

Owns: fetching several at once. Must not know: what files hold.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.tree import FileTree

AT_ONCE: Final = 8


def local_copies(tree: FileTree, names: Mapping[str, str], folder: str) -> list[str]:
    """Copy files to a directory of this machine.

    Args:
        names: By name in the tree, the name below the directory.
        folder: The directory; the caller deletes it.

    Returns:
        Their paths, in order.

    Raises:
        PipelineError: One is missing, or cannot be read or written.
    """

    def fetched(name: str) -> str:
        path = os.path.join(folder, names[name])
        try:
            content = tree.read(name)
        except FileNotFoundError:
            raise PipelineError(f"{tree.path(name)} is missing; restore it from a backup") from None
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
        except OSError as error:
            raise PipelineError(
                f"{path} cannot be written ({error.strerror}): make room, or set TMPDIR"
            ) from error
        return path

    with ThreadPoolExecutor(AT_ONCE, "fetching") as threads:
        return [*threads.map(fetched, names)]
