"""What is read: options, offsets, plans of segments. Nothing here runs on an engine."""
