"""Commands are decided, logged and applied here, and whoever waits is served."""
