"""The data pipeline: pure parts, and parts on a real Spark session."""
