"""Bulk copies: backfill into a topic, redrive of dead letters."""
