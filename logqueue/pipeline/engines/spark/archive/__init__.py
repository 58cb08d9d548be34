"""The archive job: a stream into Parquet or Delta tables, compaction, reading back."""
