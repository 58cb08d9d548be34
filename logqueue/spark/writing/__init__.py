"""From Spark into topics: the sink of the format `logqueue`, bulk loads, redrive.

Owns: how rows become writes, each once. Must not know: how logs are read.
"""
