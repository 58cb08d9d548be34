"""Audit rules as Spark queries, and the audit job."""
