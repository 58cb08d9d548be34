"""Benchmarks of the server over its HTTP contract: `python -m bench`, or `make bench`.

Owns: load, measuring and the table "How fast". Must not know: anything inside the server.
"""
