"""The data pipeline on Spark: archive, reports, audits, bulk copies.

Owns: everything that runs in or on a Spark session. Must not know: the server's inside, the command
line. Importing this package imports neither pyspark nor pyarrow.
"""
