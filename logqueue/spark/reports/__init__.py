"""Answers for people: report tables, their files, the page.

Owns: what is counted and how it is shown. Must not know: how logs are read.
"""
