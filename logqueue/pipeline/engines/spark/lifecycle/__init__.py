"""The lifecycle job: one row per job and per attempt."""
