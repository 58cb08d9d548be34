"""Segments and job histories as Arrow record batches, for any engine. Needs pyarrow, not Spark."""
