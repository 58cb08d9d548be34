"""The changes a scenario may have, for people.

Owns: this text. Must not know: anything else, since the parser of the commands reads it at start.
"""

from __future__ import annotations

from typing import Final

CHANGES: Final = """\
workers=8 | +2 | -1 | x2   jobs worked on at a time: a number, or a change of what was measured
load=x1.5                  so many times the jobs, arriving in the measured pattern
run=x0.5                   each run takes so many times as long
backoff=5s..5m             delay before a retry: doubles from the first to the second
max_deliveries=5           deliveries until a job is a dead letter
lease=30s                  after which a lost worker's jobs are handed out again
max_in_flight=10           maximum number of jobs under leases
claim_rate=100             maximum number of claims per second
first=TAG                  jobs with this tag are handed out before all others"""
