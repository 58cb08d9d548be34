"""Tests of the worker runtime."""
