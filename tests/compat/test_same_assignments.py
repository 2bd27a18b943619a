"""Our assignors compute the same assignments as Kafka's classes (C4)."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from random import Random

from penstock.client.consumer.assignors import Assignment, Subscription, assignors_of
from penstock.client.consumer.assignors.encoding import encode_subscription
from penstock.core.ids import TopicPartition
from tests.support.client.assignments import GroupCase, assigned, random_case
from tests.support.kafka.broker import JAVA_DIRECTORY, KafkaParts

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
STICKY = ("sticky", "cooperative-sticky")
CASES = 600
SEED = 20


def _lines(case: GroupCase, assignor: str) -> Iterator[str]:
    for topic, partitions in case.topics.items():
        racks = "/".join(",".join(sorted(of)) or "-" for of in partitions)
        yield f"TOPIC {topic} {racks}"
    for member, subscription in case.members.items():
        data = b64encode(encode_subscription(subscription)).decode()
        yield f"MEMBER {member} {data} {subscription.group_instance_id or '-'}"
    yield f"ASSIGN {assignor}"


def _responses(output: str) -> list[list[str]]:
    return [part.splitlines() for part in output.split("DONE\n")[:-1]]


def _partition(word: str) -> TopicPartition:
    topic, _, partition = word.rpartition(":")
    return TopicPartition(topic, int(partition))


def _as_sent(subscription: Subscription) -> Subscription:
    """Returns the subscription with topics and partitions in the order of its encoding."""
    return subscription._replace(
        topics=sorted(subscription.topics),
        owned_partitions=sorted(subscription.owned_partitions),
    )


def _past(random: Random) -> list[TopicPartition]:
    """Returns an earlier assignment of at most 12 topics, which Java's map orders by hash."""
    count = random.randint(0, 30)
    return [
        TopicPartition(f"topic-{random.randrange(12)}", partition) for partition in range(count)
    ]


def test_assignments_and_user_data_are_kafkas(kafka_parts: KafkaParts) -> None:
    """In the same order; the user data of earlier assignments is equal byte for byte, so that
    groups of both clients work."""
    random = Random(SEED)
    chosen = [NAMES[number % len(NAMES)] for number in range(CASES)]
    cases = [random_case(random, name) for name in chosen]
    pasts = [(name, number, _past(random)) for name in STICKY for number in range(20)]
    lines = [line for case, name in zip(cases, chosen, strict=True) for line in _lines(case, name)]
    for name, generation, past in pasts:
        partitions = ",".join(f"{topic}:{partition}" for topic, partition in past)
        lines.append(f"USERDATA {name} {generation} {partitions or '-'}")
    run = kafka_parts.run(JAVA_DIRECTORY / "AssignPartitions.java", stdin="\n".join(lines) + "\n")
    responses = _responses(run.stdout)
    for number, (case, name) in enumerate(zip(cases, chosen, strict=True)):
        theirs = {
            member: [_partition(word) for word in words.split(",") if word]
            for member, _, words in (line.partition(" ") for line in responses[number])
        }
        sent = {member: _as_sent(subscription) for member, subscription in case.members.items()}
        ours = assigned(assignors_of(name)[0], GroupCase(case.topics, sent))
        assert ours == theirs, (number, name, case)
    for (name, generation, past), response in zip(pasts, responses[CASES:], strict=True):
        assignor = assignors_of(name)[0]
        assignor.on_assignment(Assignment(past), generation)
        assert assignor.subscription_user_data([]) == b64decode(response[0])
