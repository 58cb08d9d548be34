"""The version of this package, as it is shown to people and in requests.

Owns: one number; `pyproject.toml` has the same. Must not know: anything else.
"""

__version__ = "0.2.0"
