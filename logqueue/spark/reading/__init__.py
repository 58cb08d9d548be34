"""From a log to Spark: the formats `logqueue` and `logqueue-wal`, and what jobs read.

Owns: options, offsets, plans of what to read, segment bytes to Arrow batches. Must not know: what
is done with the rows.
"""
