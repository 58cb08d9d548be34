"""A Celery project as it was written for SQS: nothing in it knows the server."""

import os
import sys
from pathlib import Path

from celery import Celery

app = Celery("celery_shop", broker=os.environ["BROKER_URL"])
app.conf.update(
    broker_transport_options={"region": "us-east-1", "wait_time_seconds": 2},
    task_default_queue="shop",
    task_acks_late=True,
    task_ignore_result=True,
    worker_enable_remote_control=False,
)
RECEIPTS = Path("receipts")


@app.task(bind=True, autoretry_for=(ConnectionError,), default_retry_delay=1, max_retries=3)
def charge(self, customer, cents):
    """The bank is not there at the first try."""
    if self.request.retries == 0:
        raise ConnectionError("the bank does not answer")
    write(f"{customer} paid {cents} at try {self.request.retries + 1}")
    remind.apply_async((customer,), countdown=1)


@app.task
def remind(customer):
    """Comes later than it was sent."""
    write(f"{customer} was reminded")


def write(line):
    """Note what has happened."""
    RECEIPTS.mkdir(exist_ok=True)
    with (RECEIPTS / f"{line.partition(' ')[0]}.txt").open("a") as receipts:
        print(line, file=receipts)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        charge.delay(name, 250)
