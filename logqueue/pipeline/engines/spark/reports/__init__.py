"""Reports as Spark queries, and the report job."""
