"""Where a log is read from, for any engine: its files, a replica, a running server."""
