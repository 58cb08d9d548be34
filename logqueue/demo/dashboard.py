"""The end of the demo with `--ui`: the server stays up, busy, until the user has seen enough.

Owns: the second life of the demo's server. Must not know: what the dashboard shows, how the
queues of the shop are worked.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TextIO

from logqueue.demo.server import DemoServer
from logqueue.demo.shop import Shop

PATH = "/ui/"


def keep_up(server_dir: Path, side_dir: Path, url: str, out: TextIO) -> None:
    """Run the demo's server again where it was, with a shop on it, until SIGINT or SIGTERM.

    Args:
        server_dir: Its data directory.
        side_dir: Where its output is.
        url: Where it was: pages that are open there come back by themselves.
        out: Gets the line that says where to look.

    Raises:
        ServerFailed: It does not start, or ends with an error.
    """
    done = threading.Event()
    before = [
        (number, signal.signal(number, lambda _number, _frame: done.set()))
        for number in (signal.SIGINT, signal.SIGTERM)
    ]
    server = DemoServer(server_dir, side_dir, url=url)
    try:
        server.start()
        shop = Shop(server.url)
        shop.set_up()
        shop.start()
        out.write(f"Dashboard: {server.url}{PATH} (Ctrl-C ends the demo)\n")
        out.flush()
        done.wait()
        shop.stop()
    finally:
        server.stop()
        for number, handler in before:
            signal.signal(number, handler)
