"""One event for several readers: `python fan_out.py setup`, `publish`, or `follow COUNT`."""

from __future__ import annotations

import sys

from logqueue import Client, Gap, NewRecord, Records

ORDERS = [
    NewRecord({"order": 1, "item": "book"}, tag="plain"),
    NewRecord({"order": 2, "item": "lamp"}, tag="vip.ann"),
    NewRecord({"order": 3, "item": "desk"}, tag="vip.bob"),
]


def set_up(client: Client) -> None:
    """Make the topics and the routers between them; done twice, nothing changes."""
    client.put_topic("orders")
    client.put_topic("orders.mail", type="queue", max_deliveries=5, dead_letter="orders.mail.dead")
    client.put_router("orders-mail", "orders", "orders.mail")
    client.put_router("orders-audit", "orders", "orders.audit")
    client.put_router("orders-vip", "orders", "orders.vip", filter="vip*")


def publish(client: Client) -> None:
    """Write some orders."""
    print(f"published {client.append('orders', ORDERS).count} orders")


def follow(client: Client, count: int) -> None:
    """Print what arrives in the two logs, until so many records have."""
    left = count
    for frame in client.watch(["orders.audit", "orders.vip"]):
        match frame:
            case Records():
                for record in frame.records:
                    print(f"{frame.topic}: order {record.data['order']}", flush=True)
                left -= len(frame.records)
            case Gap():
                print(f"{frame.topic}: {frame.gap_from} to {frame.gap_to} are gone", flush=True)
        if left <= 0:
            return


def main(arguments: list[str]) -> None:
    """Run one of the commands."""
    with Client() as client:
        match arguments:
            case ["setup"]:
                set_up(client)
            case ["publish"]:
                publish(client)
            case ["follow", count]:
                follow(client, int(count))
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
