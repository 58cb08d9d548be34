"""Clients of a logqueue server: `Client` blocks, `AsyncClient` awaits, the methods are the same.

Owns: the names that users import. Must not know: the server. Each call is described once,
in the modules named after what the calls are about; the two clients only make them.
"""

from logqueue.client.appending import NewRecord, NextStep
from logqueue.client.asynchronous import AsyncClient
from logqueue.client.backoff import Backoff
from logqueue.client.blocking import Client
from logqueue.client.failures import (
    ConnectionFailed,
    GatewayFailed,
    LostReply,
    TlsFailed,
    UnexpectedReply,
    Unreachable,
)
from logqueue.client.following import From, Interrupted, WatchFrame
from logqueue.client.live_stats import LiveStats
from logqueue.client.producer_calls import EpochPart
from logqueue.client.settling import FollowUp, Settled
from logqueue.client.topic_calls import ConfigFields

__all__ = [
    "AsyncClient",
    "Backoff",
    "Client",
    "ConfigFields",
    "ConnectionFailed",
    "EpochPart",
    "FollowUp",
    "From",
    "GatewayFailed",
    "Interrupted",
    "LiveStats",
    "LostReply",
    "NewRecord",
    "NextStep",
    "Settled",
    "TlsFailed",
    "UnexpectedReply",
    "Unreachable",
    "WatchFrame",
]
