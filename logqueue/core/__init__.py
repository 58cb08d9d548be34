"""The pure heart: commands are decided into events, and only `apply` changes the state.

Nothing below this package reads a clock, a file, a socket or a random number.
"""
