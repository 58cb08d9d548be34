"""Sealed and growing segments of both logs, read without a server: what they hold, row by row.

Re-exports nothing; see `index`, `walk`, `catalog` and `plan`.
"""
