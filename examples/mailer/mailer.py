"""Mail for many tenants: each gets its turn, and none sends faster than its rate.

`python mailer.py send TENANT COUNT` queues mails, `python mailer.py reset TENANT` an urgent one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from logqueue import App, Retry

SENT = Path("sent.txt")

app = App()
app.queue("mail", groups={"mode": "fair", "rate_per_group": {"per_s": 100, "burst": 20}})


@app.task(queue="mail", retry=Retry(max_attempts=5), concurrency=1)
def send_mail(tenant: str, text: str) -> None:
    """Send one mail; here, into a file."""
    with SENT.open("a") as sent:
        sent.write(f"{tenant}: {text}\n")


def main(action: str, tenant: str, count: int) -> None:
    """Queue mails of a tenant; a reset of a password goes before the tenant's other mails."""
    if action == "reset":
        send_mail.with_options(group=tenant, priority=9).send(tenant, "reset")
        return
    of_tenant = send_mail.with_options(group=tenant)
    app.send_many(of_tenant.message(tenant, f"news {number}") for number in range(1, count + 1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int((sys.argv[3:] or ["1"])[0]))
