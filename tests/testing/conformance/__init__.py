"""What holds on the server in memory and on the real one alike."""
