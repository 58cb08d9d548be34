"""The definition of each report, once: SQL that DuckDB and Spark both run."""
