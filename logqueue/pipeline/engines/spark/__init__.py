"""The pipeline on Spark: sessions, data sources and sinks, jobs.

Owns: everything that runs in or on a Spark session. Must not know: the server, the command line.
Users import these names from `logqueue.spark`.
"""
