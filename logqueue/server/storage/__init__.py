"""Both logs as one store: written, replayed, checkpointed, compacted, archived."""
