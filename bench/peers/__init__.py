"""The same work done by logqueue and by other servers on this machine, side by side.

Owns: starting the peers, speaking to them, the comparison. The server itself knows none of this.
"""
