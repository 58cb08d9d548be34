"""Facts: what has happened, as the logs keep it.

A module by noun: topics, records, routers, staging, jobs, batches of jobs, schedules, checkpoints;
`event` has what they share, `encoding` their bytes. Must not know: why something happened, how it
changes the state.

Every event carries `at`, the dispatcher's clock when it was decided; replay never asks the time.
Topics are named by `topic`, the number of the topic *instance*: a deleted and recreated topic is
another one. An event goes to the jobs log (what work exists) or the leases log (who holds what).
"""

from __future__ import annotations

# All public names, so that a new event has one place.
from logqueue.events.checkpoints import *  # noqa: F403
from logqueue.events.encoding import *  # noqa: F403
from logqueue.events.event import *  # noqa: F403
from logqueue.events.job_batches import *  # noqa: F403
from logqueue.events.jobs import *  # noqa: F403
from logqueue.events.records import *  # noqa: F403
from logqueue.events.results import *  # noqa: F403
from logqueue.events.routers import *  # noqa: F403
from logqueue.events.schedules import *  # noqa: F403
from logqueue.events.snapshots import *  # noqa: F403
from logqueue.events.staging import *  # noqa: F403
from logqueue.events.topics import *  # noqa: F403
