"""The demo: every source file of the standard library parsed by workers that survive a SIGKILL.

Owns: one real workload from end to end, driven over HTTP only, with a check at its end. Must not
know: anything of the server but its command line and its HTTP contract.
"""
