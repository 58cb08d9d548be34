"""The wire: what bodies, replies and pushed frames look like, and what each operation says."""
