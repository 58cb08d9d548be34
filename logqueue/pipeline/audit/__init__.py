"""Audit rules, findings, and the checks that read the log without an engine."""
