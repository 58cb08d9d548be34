"""Proof from the log: rules of its history, and what breaks them.

Owns: the rules, one module per subject, and the findings. Must not know: how to mend anything.
"""
