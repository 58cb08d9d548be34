"""What each operation does: a body becomes a command, a result becomes a reply."""
