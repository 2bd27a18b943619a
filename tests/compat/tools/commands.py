"""Commands that run against Kafka's broker and ours, whose results must be equal.

What a command prints is put into a form that does not change from run to run: ids, times, ports
and directories have their names instead, and lines are sorted, for the tools hash what they print.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka.tools import Shell, ToolRun

SETTINGS = {
    "node.id": "1",
    "num.partitions": "2",
    "log.index.size.max.bytes": "65536",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""The settings of both brokers."""

FILES = {
    "delete.json": {
        "partitions": [
            {"topic": "one", "partition": 0, "offset": 2},
            {"topic": "t", "partition": 0, "offset": 99},
            {"topic": "t", "partition": 1, "offset": -1},
        ],
        "version": 1,
    },
    "topics.json": {"topics": [{"topic": "one"}], "version": 1},
    "plan.json": {
        "version": 1,
        "partitions": [{"topic": "one", "partition": 0, "replicas": [1], "log_dirs": ["any"]}],
    },
    "bad-plan.json": {
        "version": 1,
        "partitions": [
            {"topic": "one", "partition": 0, "replicas": [1, 2], "log_dirs": ["any"] * 2}
        ],
    },
    "offsets.csv": "x,0,5\n",
}
"""The files by the names that commands use."""

LINES = "a:1\tk1\tone\nNULL\tk2\tNULL\nNULL\tNULL\tthree\n"
"""The input of the console producer."""

PRODUCE = (
    "console-producer --reader-property parse.key=true --reader-property parse.headers=true "
    "--reader-property null.marker=NULL --topic"
)
CONSUME = (
    "console-consumer --formatter-property print.key=true --formatter-property print.headers=true "
    "--formatter-property print.offset=true --formatter-property print.partition=true "
    "--formatter-property print.timestamp=true --topic"
)
RESET = "consumer-groups --reset-offsets --execute --group g --topic one"
RESET_NEW = "consumer-groups --reset-offsets --execute --group new --topic x"
TRANSACT = (
    "producer-perf-test --topic x --num-records 3 --record-size 5 --throughput -1 "
    "--transaction-duration-ms 60000 --transactional-id"
)

# The order matters: a command may depend on earlier ones.
COMMANDS = f"""
# Kafka sets this one automatically, for the eligible leader replicas that it keeps.
configs --alter --broker-defaults --add-config min.insync.replicas=1
topics --create --topic t --config retention.ms=60000 --config cleanup.policy=compact,delete
topics --create --topic one --partitions 1 --replication-factor 1
topics --create --topic default.of_all
topics --create --topic assigned --replica-assignment 1,1,1
topics --create --topic assigned2 --replica-assignment 1,7
topics --create --topic t
topics --create --topic t --if-not-exists
topics --create --topic u --replication-factor 3
topics --create --topic "bad name!"
topics --create --topic u --config retention.ms=abc
topics --create --topic u --config no.such=1
topics --create --topic u --config cleanup.policy=bogus
topics --create --topic default_of.all
topics --list
topics --describe
topics --describe --topic missing
topics --describe --topics-with-overrides
topics --describe --under-replicated-partitions
topics --describe --under-min-isr-partitions
topics --describe --at-min-isr-partitions
topics --describe --unavailable-partitions
topics --alter --topic default.of_all --partitions 5
topics --alter --topic default.of_all --partitions 4
topics --alter --topic default.of_all --partitions 5
topics --alter --topic missing --partitions 4
topics --describe --topic default.of_all
topics --delete --topic default.of_all
topics --delete --topic default.of_all
topics --delete --topic default.of_all --if-exists

configs --describe --topic t
configs --describe --topic t --all
configs --describe --entity-type topics
configs --alter --topic t --add-config retention.ms=7,segment.ms=9 --delete-config cleanup.policy
configs --describe --topic t
configs --alter --topic t --add-config segment.bytes=abc
configs --alter --topic t --add-config bogus.x=abc
configs --alter --topic t --add-config cleanup.policy=[compact,delete]
configs --alter --topic t --delete-config flush.ms
configs --alter --topic missing --add-config retention.ms=1
configs --describe --topic missing
configs --describe --broker 1
configs --describe --broker 9
configs --describe --broker-defaults
configs --alter --broker 1 --add-config log.cleaner.threads=2,log.retention.ms=123456
configs --alter --broker-defaults --add-config log.segment.bytes=104857600,message.max.bytes=2000000
configs --describe --broker 1
configs --describe --broker-defaults
configs --describe --entity-type brokers
configs --describe --topic one --all
configs --alter --broker 1 --add-config broker.id=9
configs --alter --broker-defaults --add-config listeners=PLAINTEXT://:1
configs --alter --broker 1 --add-config log.cleaner.threads=x
configs --alter --broker 1 --delete-config log.cleaner.threads,log.retention.ms
configs --alter --broker-defaults --delete-config log.segment.bytes,message.max.bytes
configs --describe --broker 1
configs --alter --user alice --add-config SCRAM-SHA-256=[iterations=8192,password=alice-secret]
configs --alter --user alice --add-config SCRAM-SHA-256=[iterations=1,password=alice-secret]
configs --alter --user alice --add-config producer_byte_rate=1024,consumer_byte_rate=2048
configs --alter --user alice --client app --add-config request_percentage=50
configs --alter --user-defaults --add-config producer_byte_rate=99999999
configs --alter --client app --add-config consumer_byte_rate=77
configs --alter --client-defaults --add-config consumer_byte_rate=99999999
configs --alter --ip 127.0.0.9 --add-config connection_creation_rate=10
configs --alter --ip-defaults --add-config connection_creation_rate=1000
configs --alter --user alice --add-config bogus_rate=10
configs --alter --user alice --add-config producer_byte_rate=-1
configs --describe --user alice
configs --describe --entity-type users
configs --describe --user alice --client app
configs --describe --user-defaults
configs --describe --client app
configs --describe --client-defaults
configs --describe --entity-type clients
configs --describe --ip 127.0.0.9
configs --describe --entity-type ips
configs --alter --user alice --delete-config SCRAM-SHA-256
configs --alter --user alice --delete-config SCRAM-SHA-256
configs --alter --user alice --delete-config producer_byte_rate,consumer_byte_rate
configs --alter --ip-defaults --delete-config connection_creation_rate
configs --describe --user alice
configs --describe --entity-type ips
configs --alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=50000
configs --describe --entity-type groups --entity-name g
configs --describe --entity-type groups
client-metrics --alter --name m --metrics org.apache. --interval 30000 --match client_id=x.*
client-metrics --alter --name m --interval 1
client-metrics --describe
client-metrics --list
client-metrics --delete --name m
client-metrics --list
acls --list
acls --add --allow-principal User:a --producer --topic t

{PRODUCE} one
{PRODUCE} one --compression-codec zstd
{PRODUCE} one --command-property acks=1 --command-property enable.idempotence=false
{CONSUME} one --group all --from-beginning --max-messages 9
{CONSUME} one --partition 0 --offset 7 --max-messages 2
{CONSUME} one --partition 0 --offset latest --timeout-ms 300
{CONSUME} one --group g --from-beginning --max-messages 5
{CONSUME} one --group g --max-messages 4
topics --describe --topic __consumer_offsets
get-offsets --topic one --time -1
get-offsets --topic one --time -2
get-offsets --topic one --time -4
get-offsets --topic one --time -5
get-offsets --topic t --time -3
get-offsets --topic one --time 0
get-offsets --topic one --time 99999999999999
get-offsets --topic-partitions t:0,one:0-2
get-offsets --topic missing
get-offsets --exclude-internal-topics

consumer-groups --describe --group g
consumer-groups --describe --group g --state
consumer-groups --describe --group g --members
consumer-groups --describe --group g --offsets --verbose
consumer-groups --describe --group missing
{RESET} --to-earliest
{RESET} --to-offset 4
{RESET} --shift-by 2
{RESET} --shift-by 100
{RESET} --to-datetime 2001-01-01T00:00:00.000
{RESET} --to-latest --export
consumer-groups --reset-offsets --execute --group fresh --topic t --to-latest
consumer-groups --describe --group fresh
consumer-groups --list --state empty --group g
consumer-groups --delete-offsets --group g --topic one:0
consumer-groups --delete-offsets --group g --topic missing
consumer-groups --delete --group fresh
consumer-groups --delete --group fresh

log-dirs --describe --topic-list one,t --broker-list 1
log-dirs --describe --broker-list 7
delete-records --offset-json-file delete.json
get-offsets --topic one --time -2
log-dirs --describe --topic-list one
leader-election --election-type preferred --all-topic-partitions
leader-election --election-type unclean --topic one --partition 0
reassign-partitions --generate --topics-to-move-json-file topics.json --broker-list 1
reassign-partitions --execute --reassignment-json-file plan.json
reassign-partitions --verify --reassignment-json-file plan.json
reassign-partitions --list
reassign-partitions --cancel --reassignment-json-file plan.json
reassign-partitions --execute --reassignment-json-file bad-plan.json
transactions describe-producers --topic one --partition 0

topics --create --topic x --partitions 1
{TRANSACT} tx
{TRANSACT} tx
{CONSUME} x --partition 0 --offset 0 --isolation-level read_committed --max-messages 6
transactions list
transactions list --transactional-id-pattern t.
transactions list --transactional-id-pattern t
transactions list --duration-filter 99999999
transactions describe --transactional-id tx
transactions describe --transactional-id missing
transactions describe-producers --topic x --partition 0
transactions find-hanging --broker-id 1 --max-transaction-timeout 0
transactions find-hanging --topic x --partition 0
transactions abort --topic x --partition 0 --start-offset 0
transactions abort --topic x --partition 0 --producer-id 99 --producer-epoch 0 --coordinator-epoch 0
transactions forceTerminateTransaction --transactionalId tx
transactions describe --transactional-id tx
transactions forceTerminateTransaction --transactionalId fresh
transactions list
get-offsets --topic x
topics --describe --topic __transaction_state

{CONSUME} x --group new --command-property group.protocol=consumer --max-messages 4 --from-beginning
consumer-groups --describe --group new --offsets --verbose
consumer-groups --describe --group new --state --verbose
consumer-groups --describe --group new --members --verbose
consumer-groups --list --type
consumer-groups --list --type consumer --state
consumer-groups --list --type classic --state empty
groups --list
groups --list --group-type consumer
groups --list --group-type classic
groups --list --consumer
{RESET_NEW} --to-earliest
{RESET_NEW} --to-offset 4
{RESET_NEW} --shift-by -2
{RESET_NEW} --to-current
{RESET_NEW} --by-duration PT0S
{RESET_NEW} --to-datetime 2001-01-01T00:00:00.000
{RESET_NEW} --from-file offsets.csv
consumer-groups --describe --group new
# A group of one protocol becomes one of the other when it has no members.
{CONSUME} x --group new --max-messages 1
groups --list
consumer-groups --describe --group new --state --verbose
{CONSUME} x --group new --command-property group.protocol=consumer --max-messages 1
consumer-groups --describe --group new --state --verbose
consumer-groups --delete-offsets --group new --topic x
consumer-groups --describe --group new
consumer-groups --delete --group new
consumer-groups --list

cluster cluster-id
cluster list-endpoints
"""


@dataclass(frozen=True)
class Outcome:
    """The part of a command's result that does not differ between runs."""

    exit: int | None
    lines: list[str]
    """For a failed command only the error names: the messages differ between brokers."""


def commands() -> list[str]:
    lines = (line.strip() for line in COMMANDS.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def run_all(shell: Shell, directory: Path) -> Iterator[Outcome]:
    """Runs every command; what they name in `FILES` is written to the directory."""
    for name, content in FILES.items():
        (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
    for command in commands():
        tool, *words = shlex.split(command)
        arguments = [str(directory / word) if word in FILES else word for word in words]
        stdin = LINES if tool == "console-producer" else ""
        run = shell.attempt(tool, *arguments, stdin=stdin)
        if run.exit and "Exception" not in run.text:
            # The kind of the failure is in the tool's log. That may not have been
            # ready yet, in the one JVM of all tools; a command that failed can be given again.
            run = shell.attempt(tool, *arguments, stdin=stdin)
        yield Outcome(run.exit, _stable(run, shell.bootstrap, directory))


def _stable(run: ToolRun, bootstrap: str, directory: Path) -> list[str]:
    if "Exception" in run.text:
        return sorted(set(re.findall(r"\b\w+Exception\b", run.text)))
    text = run.text.replace(bootstrap, "ADDRESS").replace(str(directory), "FOLDER")
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text)
    return sorted(line.rstrip() for line in text.splitlines() if line.strip())


CHANGING = (
    (r"TopicId: \S+", "TopicId: ID"),
    (r"Cluster ID: \S+", "Cluster ID: ID"),
    (r"127\.0\.0\.1 \d+", "ADDRESS"),
    (r"(?m)^\[[-\d]+ [:,\d]+\] ", ""),
    (r"\b1[789]\d{11}\b", "TIME"),
    (r"(TIME[ \t]+)\d+ *", r"\1DURATION"),
    (r"records sent, .*", "records sent"),
    (r'"size":\d\d+', '"size":SOME'),
    (r"(?m)^.*consumer rebalance protocol \(KIP-848\).*\n", ""),
)
