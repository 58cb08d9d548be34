"""The contract, held against a real server process over a real port."""
