"""The data sources `logqueue` and `logqueue-wal`, and the sink."""
