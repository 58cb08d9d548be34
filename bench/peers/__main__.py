"""The command line of the comparison with other servers.

Exit status 0 when every installed peer could be measured; 1 when one failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from bench.load import LoadFailed
from bench.machine import describe
from bench.page import PAGE, add_output_options, write_between
from bench.peers.beanstalk import Beanstalkd
from bench.peers.jetstream import JetStream
from bench.peers.ours import Logqueue
from bench.peers.peer import Peer
from bench.peers.postgres import PostgreSQL
from bench.peers.redis_streams import RedisStreams
from bench.peers.table import Comparison, for_machine, markdown, picture, render
from bench.peers.works import WORKS, Size, Work, measure
from bench.progress import Progress

PEERS: dict[str, type[Peer]] = {
    "logqueue": Logqueue,
    "redis": RedisStreams,
    "beanstalkd": Beanstalkd,
    "nats": JetStream,
    "postgresql": PostgreSQL,
}
FULL = Size(warmup_s=0.4, seconds=1.5)
QUICK = Size(warmup_s=0.05, seconds=0.1)
PICTURE = Path("docs/performance-peers.svg")


def main() -> int:
    """Measure all peers in turns, then report."""
    options = _read_options()
    # An exception of a handler would end in whichever callback runs, as a failure of the peer.
    stopped_by: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda caught, _frame: stopped_by.append(caught))
    chosen = [PEERS[name] for name in options.peers]
    peers = [peer for peer in chosen if peer.version()]
    missing = [peer for peer in chosen if peer not in peers]
    works = [work for work in WORKS if work.name in options.only]
    comparison = Comparison(works, peers)
    rounds = 1 if options.quick else options.rounds
    with Progress(sys.stderr, rounds * len(peers) * len(works)) as progress:
        for peer in missing:
            progress.tell(f"{peer.name} is not installed, so it is left out: {peer.install}")
        for turn in range(rounds):
            for peer in peers[turn % len(peers) :] + peers[: turn % len(peers)]:
                _take_turn(
                    comparison, peer, QUICK if options.quick else FULL, options.dir, progress
                )
    if stopped_by:
        return 128 + stopped_by[0]
    about = {"rounds": rounds, **describe()}
    if options.json:
        sys.stdout.write(for_machine(comparison, about).decode() + "\n")
    else:
        render(comparison, about, sys.stdout)
    if options.write:
        write_between(PAGE, "peers", markdown(comparison, missing, about))
        PICTURE.write_text(picture(comparison), encoding="utf-8")
    return 1 if comparison.failures else 0


def _take_turn(
    comparison: Comparison, kind: type[Peer], size: Size, parent: Path, progress: Progress
) -> None:
    """All works on a fresh server, whose data goes with it."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peer-", dir=parent) as folder:
        peer = kind(Path(folder).resolve())
        try:
            peer.start()
            for number, work in enumerate(comparison.works):
                progress.begin(f"{kind.name}: {work.name}")
                if not (work.follows and kind.lacks):
                    _measure(comparison, peer, work, f"bench{number}", size, progress)
                progress.end()
        except (LoadFailed, OSError) as failure:
            progress.tell(f"  {kind.name} failed: {failure}")
            comparison.failures["start", kind.name] = str(failure)
        finally:
            peer.kill()


def _measure(
    comparison: Comparison, peer: Peer, work: Work, queue: str, size: Size, progress: Progress
) -> None:
    try:
        measured = measure(peer, work, queue, size)
    except (LoadFailed, TimeoutError) as failure:
        progress.tell(f"  {peer.name}, {work.name} failed: {failure!r}")
        comparison.failures[work.name, peer.name] = str(failure) or repr(failure)
        return
    comparison.add(work, type(peer), measured)
    progress.tell(
        f"  {measured.value:,.2f} {work.unit}, server {measured.cpu_us:.1f} µs each, "
        f"load {measured.load:.2f} cores"
    )


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description="Does the same work with logqueue and with other servers, all of them durable.",
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=list(PEERS),
        default=list(PEERS),
        metavar="NAME",
        help=f"only these, ours first: {', '.join(PEERS)}",
    )
    names = [work.name for work in WORKS]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=names,
        metavar="WORK",
        help=f"only these works: {', '.join(names)}",
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of each peer (default: 3)")
    parser.add_argument("--quick", action="store_true", help="tiny counts: shows that it runs")
    add_output_options(parser, "table and plot")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
