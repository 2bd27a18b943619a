"""Kafka's own classes read our messages and write the same bytes, record schemas included (M4)."""

from random import Random

from penstock.protocol.codec import encode
from tests.support.kafka.broker import JAVA_DIRECTORY, KafkaParts
from tests.support.protocol.message_samples import full_message, message_versions, random_message

SAMPLES = 10


def test_kafka_re_encodes_our_messages_to_the_same_bytes(kafka_parts: KafkaParts) -> None:
    sent: list[str] = []
    for cls, version in message_versions():
        random = Random(f"{cls.__name__} {version}")
        messages = [full_message(cls, version, elements=2), cls()]
        messages += [random_message(cls, version, random) for _ in range(SAMPLES)]
        sent += [
            f"{cls.__name__} {version} {encode(message, version).hex()}" for message in messages
        ]
    run = kafka_parts.run(JAVA_DIRECTORY / "RewriteMessages.java", stdin="\n".join(sent))
    responses = run.stdout.splitlines()
    assert len(responses) == len(sent)
    wrong = [
        f"{line}\n  {response}"
        for line, response in zip(sent, responses, strict=True)
        if response not in ("same", "unknown")
    ]
    assert wrong == []
    assert responses.count("same") > 680 * (SAMPLES + 2)
