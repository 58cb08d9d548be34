"""What a job reads: an archive of Parquet files, the files of a log, or a server.

Owns: the choice among them, which topics are read, and what options a source gets. Must not know:
any engine, any job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading import options

EVERYTHING = ".*"


@dataclass(frozen=True)
class InputPlace:
    """One place to read from, and which topics of it.

    Attributes:
        archive: Root of an archive that `logqueue pipeline archive` has made.
        path: A data directory, an archive of the log, or several with commas between them.
        url: Of a server.
        token, token_file: The key to call the server with, or a file that holds it.
        topics: Names; None for all, unless `pattern` is given.
        pattern: Regular expression that whole names fit.
        options: Further options of the source, such as `failOnDataLoss` or `startingOffsets`.

    Raises:
        PipelineError: Not exactly one place is named, or an option does not fit it.
    """

    archive: str | None = None
    path: str | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    topics: Sequence[str] | None = None
    pattern: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sum(place is not None for place in (self.archive, self.path, self.url)) != 1:
            raise PipelineError(
                "name one place to read from: an archive (archive), a data directory (path) or a "
                "server (url)"
            )
        if self.topics and self.pattern is not None:
            raise PipelineError("give names of topics or a pattern, not both")
        if self.archive is not None:
            if self.options:
                raise PipelineError(
                    f"an archive takes no options of a source: {', '.join(sorted(self.options))}"
                )
        elif self.url is not None:
            options.live(self.source_options())
        else:
            options.offline(self.source_options())

    def covers(self, topic: str) -> bool:
        """Whether a topic is among those that are read."""
        if self.topics:
            return topic in self.topics
        return self.pattern is None or re.fullmatch(self.pattern, topic) is not None

    def source_options(self) -> dict[str, str]:
        """Place and topics as options of our sources; nothing of an archive."""
        given = dict(self.options)
        if self.url is not None:
            given["url"] = self.url
            if self.token_file is not None:
                given["tokenFile"] = self.token_file
            elif self.token is not None:
                given["token"] = self.token
        elif self.path is not None:
            given["path"] = self.path
        if self.topics:
            given["topics"] = ",".join(self.topics)
        else:
            given["topicPattern"] = EVERYTHING if self.pattern is None else self.pattern
        return given
