"""Customers in SQLite and page views in the topic `clicks`, a few of them broken.

    python examples/clickstream/generate.py [--views 5000] [--seed 1]

Prints what the pipeline is to find: views and checkouts by minute and segment.
"""

import argparse
import json
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.client import Admin, Producer
from penstock.client.admin import AdminError, NewTopic
from penstock.core.errors import ErrorCode

TOPIC = "clicks"
SEGMENTS = ("private", "business", "school")
PAGES = ("/", "/search", "/product", "/basket", "/checkout")
BROKEN = (b"not json", b'{"customer_id": 5, "page": "/"}', b'{"customer_id": "?", "page": "/"}')

Counts = dict[tuple[str, str], tuple[int, int]]


def make_customers(database: Path, customers: int) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS customers (id BIGINT PRIMARY KEY, segment TEXT)"
        )
        rows = [(number, SEGMENTS[number % len(SEGMENTS)]) for number in range(customers)]
        connection.executemany("INSERT OR REPLACE INTO customers VALUES (?, ?)", rows)


def make_topic(servers: str, topic: str = TOPIC, partitions: int = 3) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        try:
            admin.create_topics([NewTopic(topic, partitions)])
        except AdminError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def send_views(
    servers: str,
    views: int,
    seed: int,
    customers: int,
    begin: datetime,
    before: Callable[[int], None] = lambda number: None,
) -> tuple[Counts, int]:
    """Sends views; returns counts by minute and segment, and the number of broken records.

    Some customers are in no table. Views come up to a minute late, which the watermark allows.
    `before` is called with the number of each view, and may wait.
    """
    rng = random.Random(seed)
    counts: Counter[tuple[str, str]] = Counter()
    checkouts: Counter[tuple[str, str]] = Counter()
    broken = 0
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(views):
            before(number)
            if number % 500 == 250:
                producer.send(TOPIC, rng.choice(BROKEN))
                broken += 1
            customer = rng.randrange(customers + 5)
            at = begin + timedelta(seconds=number * 0.2 - rng.random() * 60)
            page = rng.choice(PAGES)
            event = {"customer_id": customer, "page": page, "at": at.isoformat()}
            producer.send(TOPIC, json.dumps(event).encode(), key=str(customer).encode())
            segment = SEGMENTS[customer % len(SEGMENTS)] if customer < customers else "unknown"
            group = at.strftime("%Y-%m-%d %H:%M"), segment
            counts[group] += 1
            checkouts[group] += page == "/checkout"
    return {group: (counts[group], checkouts[group]) for group in counts}, broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=5_000)
    parser.add_argument("--customers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    servers = os.environ.get("PENSTOCK_BOOTSTRAP_SERVERS", "localhost:9092")
    make_customers(
        Path(os.environ.get("CLICKSTREAM_FOLDER", Path(__file__).parent)) / "shop.db",
        arguments.customers,
    )
    make_topic(servers)
    begin = datetime.now(UTC).replace(microsecond=0)
    counts, broken = send_views(
        servers, arguments.views, arguments.seed, arguments.customers, begin
    )
    for (minute, segment), (views, checkouts) in sorted(counts.items()):
        print(f"{minute}  {segment:10} {views:6,} views {checkouts:5,} checkouts")
    print(f"{broken} records that cannot be read")


if __name__ == "__main__":
    main()
