"""Tests of what clients of Amazon SQS see."""
