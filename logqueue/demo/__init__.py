"""The demo: every source file of the standard library parsed by workers that survive a SIGKILL.

Owns: one real workload from end to end, driven by the Python client and the worker runtime, with a
check at its end. Must not know: anything of the server but its command line.
"""
