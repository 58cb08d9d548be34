"""What would have been: a queue replayed with other workers, load or limits."""
