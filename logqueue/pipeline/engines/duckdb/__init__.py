"""The pipeline on DuckDB: one process on this machine, without Java.

Owns: what runs there. Must not know: pyspark, the command line. `engines.spark` runs the same on
Spark.
"""
