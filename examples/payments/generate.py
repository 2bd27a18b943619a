"""Merchants in a CSV file and payments in the topic `payments`: some twice, some doubtful.

    python examples/payments/generate.py [--payments 5000] [--seed 1]

Prints how many are to be approved and how many are suspicious.
"""

import argparse
import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from penstock.client import Admin, Producer
from penstock.client.admin import AdminError, NewTopic
from penstock.core.errors import ErrorCode

TOPICS = ("payments", "payments.approved", "payments.suspicious")
MERCHANTS = 40
COUNTRIES = ("NO", "PT", "PL", "JP")
LIMIT_CENTS = 500_000


class Sent(NamedTuple):
    approved: set[str]
    suspicious: set[str]
    broken: int


def make_merchants(file: Path) -> None:
    lines = ["id,name,country"]
    lines += [f"{number},Shop {number},{COUNTRIES[number % 4]}" for number in range(MERCHANTS)]
    file.write_text("\n".join(lines) + "\n")


def make_topics(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        try:
            admin.create_topics([NewTopic(topic, 3) for topic in TOPICS])
        except AdminError as error:
            if any(
                cause.code is not ErrorCode.TOPIC_ALREADY_EXISTS for cause in error.errors.values()
            ):
                raise


def send(servers: str, count: int, seed: int) -> Sent:
    """Sends payments, and returns the ids to be approved, and those that are not."""
    rng = random.Random(seed)
    approved: set[str] = set()
    suspicious: set[str] = set()
    broken = 0
    at = datetime.now(UTC).replace(microsecond=0)
    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(count):
            merchant = rng.randrange(MERCHANTS + 2)
            cents = rng.randrange(-2_000, LIMIT_CENTS + 20_000)
            payment = {
                "id": f"p-{seed}-{number}",
                "card": f"card {rng.randrange(200)}",
                "merchant_id": merchant,
                "cents": cents,
                "at": (at + timedelta(milliseconds=number * 20)).isoformat(),
            }
            good = merchant < MERCHANTS and 0 < cents <= LIMIT_CENTS
            (approved if good else suspicious).add(f"p-{seed}-{number}")
            value, key = json.dumps(payment).encode(), str(payment["card"]).encode()
            for _ in range(2 if rng.random() < 0.05 else 1):
                producer.send("payments", value, key=key)
            if number % 1_000 == 500:
                producer.send("payments", b'{"id": "half a paym', key=key)
                broken += 1
    return Sent(approved, suspicious, broken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payments", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    servers = os.environ.get("PENSTOCK_BOOTSTRAP_SERVERS", "localhost:9092")
    make_merchants(Path(os.environ.get("PAYMENTS_FOLDER", Path(__file__).parent)) / "merchants.csv")
    make_topics(servers)
    sent = send(servers, arguments.payments, arguments.seed)
    print(
        f"{len(sent.approved):,} to be approved, {len(sent.suspicious):,} suspicious, "
        f"{sent.broken} that cannot be read"
    )


if __name__ == "__main__":
    main()
