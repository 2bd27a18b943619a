"""`penstock dump-log` as it is used: options, output, exit codes."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock import __version__
from penstock.cli.app import new_app
from penstock.core.ids import TopicPartition
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue
from penstock.protocol.stored.transaction_log import TransactionLogKey, TransactionLogValue
from penstock.protocol.versioned import encode_record_key, encode_versioned
from penstock.records.record import Record
from penstock.storage.checkpoint.checkpoint_files import encode_offsets
from tests.support.storage.written_log import NOW_MS, WrittenLog

FIRST_BATCH = 91
"""Bytes of the first batch of `written`."""

MAIN = [sys.executable, "-c", "from penstock.cli.app import main; main()"]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(new_app(), [str(argument) for argument in arguments])


def run_process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MAIN, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )


@pytest.fixture
def written(new_log: Callable[..., WrittenLog]) -> WrittenLog:
    """A closed log with plain records, a transaction that was aborted, and every index."""
    log = new_log(index_interval_bytes=0)
    records = [
        Record(0, NOW_MS, b"k1", b"hello", (("trace", b"7"),)),
        Record(1, NOW_MS + 1, b"\xff", None),
    ]
    log.append(records)
    log.append(records, producer_id=4000, base_sequence=0, is_transactional=True)
    log.end_txn(4000, commit=False, timestamp=NOW_MS + 2)
    log.close()
    return log


def test_batches_are_shown_as_kafka_shows_them(written: WrittenLog) -> None:
    path = written.path(".log")
    result = run("dump-log", path)
    assert result.exit_code == 0
    heading, *batches, summary = result.stdout.splitlines()
    assert heading == f"Dumping {path} size: {path.stat().st_size} startingOffset: 0"
    assert len(batches) == 3
    first = batches[0].split(" crc: ")[0]
    assert first == (
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
        "producerEpoch: -1 partitionLeaderEpoch: 5 isTransactional: false isControl: false "
        "deleteHorizonMs: none position: 0 "
        f"CreateTime: {NOW_MS + 1} size: {FIRST_BATCH} magic: 2 compresscodec: none"
    )
    assert batches[0].endswith(" isvalid: true")
    assert summary.startswith("= batches: 3 records: 5 ")


def test_records_are_shown_as_kafka_shows_them(written: WrittenLog) -> None:
    result = run("dump-log", "--deep-iteration", written.path(".log"))
    assert result.exit_code == 0
    records = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    assert records[0] == (
        f"| offset: 0 CreateTime: {NOW_MS} keySize: 2 valueSize: 5 sequence: -1 headerKeys: [trace]"
    )
    assert records[4] == (
        f"| offset: 4 CreateTime: {NOW_MS + 2} keySize: 4 valueSize: 6 sequence: -1 "
        "headerKeys: [] endTxnMarker: ABORT coordinatorEpoch: 7"
    )


def test_data_implies_records(written: WrittenLog) -> None:
    path = written.path(".log")
    lines = run("dump-log", "--print-data-log", path).stdout.splitlines()
    assert lines[2].endswith(' headers: [{"key":"trace","value":"7"}] key: k1 payload: hello')
    assert lines[3].endswith(" key: \\xff")
    result = run("dump-log", "--print-data-log", "--skip-record-metadata", path)
    assert result.stdout.splitlines()[3] == "| key: \\xff"


def test_json_is_one_object_per_line(written: WrittenLog) -> None:
    path = written.path(".log")
    result = run("dump-log", "--json", "--print-data-log", path)
    assert result.exit_code == 0
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert {entry["file"] for entry in objects} == {str(path)}
    kinds = ["file", "batch", "record", "record", "batch", "record", "record", "batch", "record"]
    assert [entry["kind"] for entry in objects] == [*kinds, "summary"]
    assert objects[1]["deleteHorizonMs"] is None
    assert objects[1]["isControl"] is False
    assert objects[2]["payload"] == "hello"
    assert objects[3]["key"] == {"base64": "/w=="}
    assert objects[3]["payload"] is None


def test_a_directory_stands_for_its_files(written: WrittenLog) -> None:
    (written.directory / "notes.txt").write_text("left alone")
    result = run("dump-log", "--json", written.directory)
    assert result.exit_code == 0
    files = [json.loads(line) for line in result.stdout.splitlines()]
    dumped = [Path(path["file"]).name for path in files if path["kind"] == "file"]
    start = f"{0:020d}"
    assert dumped == [
        f"{start}.index",
        f"{start}.log",
        f"{start}.timeindex",
        f"{start}.txnindex",
        f"{5:020d}.snapshot",
        "leader-epoch-checkpoint",
    ]


def test_a_directory_of_log_dirs(written: WrittenLog) -> None:
    parent = written.directory.parent
    offsets = encode_offsets({TopicPartition("orders", 0): 5})
    (parent / "recovery-point-offset-checkpoint").write_bytes(offsets)
    result = run("dump-log", parent)
    assert result.exit_code == 0
    assert f"# 1 partition directories are in {parent}: name one to dump it" in result.stdout
    assert "topic: orders partition: 0 offset: 5" in result.stdout
    assert "baseOffset" not in result.stdout


def test_indexes_that_agree(written: WrittenLog) -> None:
    for option in ("--verify-index-only", "--index-sanity-check"):
        result = run("dump-log", option, *sorted(written.directory.iterdir()))
        assert result.exit_code == 0
        assert result.stdout.count("Dumping") == 3
        assert "offset:" not in result.stdout


def test_an_index_that_disagrees(written: WrittenLog) -> None:
    index = written.path(".index")
    content = bytearray(index.read_bytes())
    content[3] += 1
    index.write_bytes(content)
    result = run("dump-log", "--verify-index-only", written.directory)
    assert result.exit_code == 1
    assert "! index entry names another offset than the batch there" in result.stdout
    assert run("dump-log", index).exit_code == 1


def test_nothing_to_verify(written: WrittenLog) -> None:
    result = run("dump-log", "--verify-index-only", written.path(".log"))
    assert result.exit_code == 2
    assert "there is no .index, .timeindex or .txnindex file to check" in result.stderr


def test_a_corrupt_log(written: WrittenLog) -> None:
    """S7: position, reason and what is left; no traceback."""
    path = written.path(".log")
    content = bytearray(path.read_bytes())
    content[FIRST_BATCH + 16] = 77
    path.write_bytes(content)
    result = run("dump-log", "--print-data-log", path)
    assert result.exit_code == 1
    assert "! no batch can be read here: magic is 77" in result.stdout
    assert f"position: {FIRST_BATCH} remainingBytes: {len(content) - FIRST_BATCH}" in result.stdout


def test_max_bytes(written: WrittenLog) -> None:
    result = run("dump-log", "--max-bytes", str(FIRST_BATCH + 10), written.path(".log"))
    assert result.exit_code == 0
    assert result.stdout.count("baseOffset") == 1
    assert run("dump-log", "--max-bytes", "-1", written.path(".log")).exit_code == 2


def test_offsets_decoder(new_log: Callable[..., WrittenLog]) -> None:
    log = new_log()
    key = encode_record_key(OffsetCommitKey("readers", "orders", 3))
    value = encode_versioned(OffsetCommitValue(offset=42), 1)
    log.append([Record(0, NOW_MS, key, value), Record(1, NOW_MS, key, None)])
    log.close()
    result = run("dump-log", "--offsets-decoder", log.path(".log"))
    assert result.exit_code == 0
    _, _, set_, deleted, _ = result.stdout.splitlines()
    decoded = 'key: {"type":1,"data":{"group":"readers","topic":"orders","partition":3}}'
    assert f"{decoded} payload: " in set_
    assert '"offset":42' in set_
    assert deleted.endswith(decoded)
    wrong = run("dump-log", "--transaction-log-decoder", log.path(".log"))
    assert wrong.exit_code == 1


def test_transaction_log_decoder(new_log: Callable[..., WrittenLog]) -> None:
    log = new_log()
    key = encode_record_key(TransactionLogKey("tx-1"))
    value = encode_versioned(TransactionLogValue(producer_id=4000), 0)
    log.append([Record(0, NOW_MS, key, value)])
    log.close()
    result = run("dump-log", "--transaction-log-decoder", "--json", log.path(".log"))
    assert result.exit_code == 0
    record = json.loads(result.stdout.splitlines()[2])
    assert record["key"] == {"type": 0, "data": {"transactionalId": "tx-1"}}
    assert record["payload"]["data"]["producerId"] == 4000


def test_two_decoders_exclude_each_other(written: WrittenLog) -> None:
    path = written.path(".log")
    result = run("dump-log", "--offsets-decoder", "--transaction-log-decoder", path)
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("00000000000000000000.log", "No such file or directory"),
        ("missing.txt", "No such file or directory"),
        ("notes.txt", "is not a file of a log; those are named <20 digits>.log, "),
    ],
)
def test_files_that_are_not_there_or_not_known(tmp_path: Path, name: str, reason: str) -> None:
    path = tmp_path / name
    if name == "notes.txt":
        path.touch()
    result = run("dump-log", path)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"penstock dump-log: {path}: {reason}")


def test_an_empty_directory(tmp_path: Path) -> None:
    result = run("dump-log", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == (
        f"penstock dump-log: {tmp_path}: is a directory without any file of a log\n"
    )


def test_one_bad_file_does_not_stop_the_others(written: WrittenLog, tmp_path: Path) -> None:
    result = run("dump-log", tmp_path / "no.log", written.path(".log"))
    assert result.exit_code == 2
    assert result.stdout.count("baseOffset") == 3
    assert len(result.stderr.splitlines()) == 1


def test_a_named_pipe_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    os.mkfifo(path)
    result = run("dump-log", path)
    assert result.exit_code == 2
    assert "Not a regular file" in result.stderr


def test_nothing_is_changed(written: WrittenLog) -> None:
    """Read-only files in a read-only directory can be dumped, and stay as they are."""

    def state() -> dict[str, tuple[int, bytes]]:
        return {
            path.name: (path.stat().st_mtime_ns, path.read_bytes())
            for path in written.directory.iterdir()
        }

    before = state()
    for path in written.directory.iterdir():
        path.chmod(stat.S_IRUSR)
    written.directory.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        for options in (["--print-data-log"], ["--verify-index-only"], ["--index-sanity-check"]):
            assert run("dump-log", *options, written.directory).exit_code == 0
        assert state() == before
    finally:
        written.directory.chmod(stat.S_IRWXU)


def test_a_sparse_file_of_many_gigabytes_is_streamed(written: WrittenLog) -> None:
    path = written.path(".log")
    valid = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(valid + (1 << 40))
    result = run("dump-log", "--max-bytes", str(valid), path)
    assert result.exit_code == 0
    assert result.stdout.count("baseOffset") == 3


def test_version_and_help() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"penstock {__version__}\n")
    result = run("--help")
    assert result.exit_code == 0
    assert "dump-log" in result.stdout
    assert run().exit_code == 2
    assert "--deep-iteration" in run("dump-log", "--help").stdout


def test_as_a_process(written: WrittenLog, tmp_path: Path) -> None:
    """What a shell sees: exit codes, no colours in a pipe, no traceback."""
    good = run_process("dump-log", "--print-data-log", written.directory)
    assert (good.returncode, good.stderr) == (0, "")
    assert "\x1b" not in good.stdout
    missing = run_process("dump-log", tmp_path / f"{9:020d}.log")
    assert missing.returncode == 2
    assert missing.stdout == ""
    assert len(missing.stderr.splitlines()) == 1
    path = written.path(".log")
    path.write_bytes(path.read_bytes()[:-1])
    torn = run_process("dump-log", path)
    assert (torn.returncode, torn.stderr) == (1, "")


def test_a_reader_that_goes_away(new_log: Callable[..., WrittenLog]) -> None:
    """`penstock dump-log … | head -1` ends at once and says nothing."""
    log = new_log()
    for _ in range(40):
        log.append_values(*[b"value"] * 100)
    log.close()
    process = subprocess.Popen(
        [*MAIN, "dump-log", "--print-data-log", str(log.path(".log"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline().startswith(b"Dumping ")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + 13


def test_an_output_that_is_full(written: WrittenLog) -> None:
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [*MAIN, "dump-log", str(written.directory)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
    assert process.returncode == 2
    assert process.stderr == "penstock dump-log: cannot write: No space left on device\n"


def test_an_encoding_that_lacks_a_character(new_log: Callable[..., WrittenLog]) -> None:
    log = new_log()
    log.append([Record(0, NOW_MS, "zoë".encode(), b"")])
    log.close()
    process = subprocess.run(
        [*MAIN, "dump-log", "--print-data-log", str(log.path(".log"))],
        capture_output=True,
        timeout=60,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "ascii:strict"},
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, b"")
    assert b"key: zo\\xeb" in process.stdout


@pytest.mark.parametrize(("no_colour", "coloured"), [(False, True), (True, False)])
def test_colours_only_on_a_terminal(written: WrittenLog, no_colour: bool, coloured: bool) -> None:
    terminal, other_end = os.openpty()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    if no_colour:
        environment["NO_COLOR"] = "1"
    try:
        subprocess.run(
            [*MAIN, "dump-log", str(written.directory / "leader-epoch-checkpoint")],
            stdout=other_end,
            env=environment,
            timeout=60,
            check=True,
        )
        output = os.read(terminal, 10_000)
    finally:
        os.close(terminal)
        os.close(other_end)
    assert b"startOffset:" in output
    assert (b"\x1b[" in output) == coloured
