"""Changes of a table of customers, in the topic `shop.customers`, as Debezium would write them.

    python examples/change_data/generate.py [--changes 5000] [--seed 1]

Prints how many rows the table has in the end.
"""

import argparse
import json
import os
import random
from collections.abc import Iterator
from typing import TypedDict

from penstock.client import Admin, Producer
from penstock.client.admin import AdminError, NewTopic
from penstock.core.errors import ErrorCode

TOPIC = "shop.customers"
CITIES = ("Bergen", "Porto", "Gdańsk", "Łódź", "Kraków", "東京")


class Customer(TypedDict):
    id: int
    name: str
    city: str
    credit: str


def changes(count: int, seed: int, table: dict[int, Customer]) -> Iterator[dict[str, object]]:
    """Yields random changes, and applies them to `table`."""
    rng = random.Random(seed)
    for number in range(count):
        known = sorted(table)
        what = rng.random()
        before: Customer | None = None
        after: Customer | None = None
        if known and what < 0.15:
            op, before = "d", table.pop(rng.choice(known))
        elif known and what < 0.65:
            op, before = "u", table[rng.choice(known)]
            after = Customer(**{**before, "city": rng.choice(CITIES)})
        else:
            op = "c"
            # The id of a deleted row may be used again.
            id_ = rng.randrange(count // 4 + 1)
            while id_ in table:
                id_ += 1
            credit = f"{rng.randrange(100_000) / 100:.2f}"
            after = Customer(id=id_, name=f"name {number}", city=rng.choice(CITIES), credit=credit)
        if after is not None:
            table[after["id"]] = after
        yield {"op": op, "before": before, "after": after, "ts_ms": 1_767_225_600_000 + number}


def send(servers: str, count: int, seed: int) -> dict[int, Customer]:
    """Sends the changes, and returns the table after all of them."""
    with Admin(bootstrap_servers=servers) as admin:
        try:
            admin.create_topics([NewTopic(TOPIC, 3)])
        except AdminError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    table: dict[int, Customer] = {}
    with Producer(bootstrap_servers=servers) as producer:
        for change in changes(count, seed, table):
            row = change["after"] or change["before"]
            assert isinstance(row, dict)
            producer.send(TOPIC, json.dumps(change).encode(), key=str(row["id"]).encode())
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    servers = os.environ.get("PENSTOCK_BOOTSTRAP_SERVERS", "localhost:9092")
    table = send(servers, arguments.changes, arguments.seed)
    print(f"{arguments.changes:,} changes leave {len(table):,} customers")


if __name__ == "__main__":
    main()
