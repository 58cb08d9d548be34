"""A durable log and lease-queue server that fits on one machine."""

__version__ = "0.1.0"
