"""Request bodies: bytes to typed values and commands."""
