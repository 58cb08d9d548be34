"""The data pipeline: archive, reports, audits, bulk copies.

Owns: what each of them is, whatever runs it. Must not know: pyspark, the server, the command line.
`engines` holds what runs them. Importing this package imports neither pyspark nor pyarrow.
"""
