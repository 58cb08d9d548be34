"""The audit on this machine."""
