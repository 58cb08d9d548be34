"""Commands are decided, logged and applied here, and waiting requests are served."""
