"""What a bulk write is asked for: options, and what it remembers of its progress."""
