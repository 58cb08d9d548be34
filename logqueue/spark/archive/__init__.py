"""Parquet files that outlive the server.

Owns: their layout, the manifests that say which count, the job that adds to them, compaction,
Delta. Must not know: what is asked of them.
"""
