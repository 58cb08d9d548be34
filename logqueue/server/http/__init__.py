"""Connections and what travels over them. Must not know what an operation does."""
