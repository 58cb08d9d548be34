"""Simulated disks, for tests of logs and of what is built on them."""
