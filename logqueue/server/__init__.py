"""The driver around the core: two logs, one event loop, HTTP."""
