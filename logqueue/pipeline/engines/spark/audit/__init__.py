"""The audit on Spark."""
