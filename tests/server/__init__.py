"""The server, room by room: what needs no socket is tested without one."""
