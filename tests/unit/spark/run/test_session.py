"""The settings of a pipeline's session."""

import os
import shlex
import signal
from pathlib import Path

import pytest

from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run.jvm_archive import options_for
from penstock.spark.run.session import _interrupted_later, _java_home, settings


def pipeline(**spark: str) -> PipelineSpec:
    return PipelineSpec(
        name="p", bootstrap_servers="localhost:9092", sources=(), sinks=(), spark=spark
    )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_state_is_stored_in_rocksdb_with_a_changelog() -> None:
    result = settings(pipeline())
    assert result["spark.sql.streaming.stateStore.providerClass"].endswith(
        "RocksDBStateStoreProvider"
    )
    changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    assert result[changelog] == "true"


def test_there_are_as_many_partitions_as_cores() -> None:
    name = "spark.sql.shuffle.partitions"
    assert settings(pipeline())[name] == str(os.cpu_count())
    assert settings(pipeline(), "local[3]")[name] == "3"
    assert settings(pipeline(), "local[3,2]")[name] == "3"
    assert settings(pipeline(), "local")[name] == "1"
    assert name not in settings(pipeline(), "spark://host:7077")


@pytest.mark.parametrize(
    "master", ["spark://a:7077,b:7077", "yarn", "k8s://https://a:6443", "local[4]", "local[2,3]"]
)
def test_a_master_is_passed_on_unchanged(master: str) -> None:
    """From the command line or the pipeline's file, with all values that Spark accepts."""
    spark_settings = {
        "spark.submit.deployMode": "client",
        "spark.submit.pyFiles": "helpers.zip",
        "spark.archives": "environment.tar.gz#environment",
        "spark.yarn.queue": "nights",
        "spark.kubernetes.container.image": "registry/penstock:1",
        "spark.executor.instances": "3",
    }
    for result in (
        settings(pipeline(**spark_settings), master),
        settings(pipeline(**spark_settings, **{"spark.master": master})),
    ):
        assert result["spark.master"] == master
        assert {name: result[name] for name in spark_settings} == spark_settings


@pytest.mark.parametrize("master", ["spark://a:7077,b:7077", "yarn", "k8s://https://a:6443"])
def test_on_a_cluster_addresses_and_memory_are_left_to_spark(master: str) -> None:
    result = settings(pipeline(), master)
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.driver.memory"} & set(
        result
    )


def test_settings_of_the_pipeline_win() -> None:
    spec = pipeline(
        **{
            "spark.master": "local[1]",
            "spark.sql.shuffle.partitions": "7",
            "spark.driver.extraJavaOptions": "-Dmine=1",
        }
    )
    result = settings(spec)
    assert result["spark.master"] == "local[1]"
    assert settings(spec, "local[4]")["spark.master"] == "local[4]"
    assert result["spark.sql.shuffle.partitions"] == "7"
    assert result["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")


def test_short_jobs_disable_the_second_compiler() -> None:
    name = "spark.driver.extraJavaOptions"
    assert "TieredStopAtLevel=1" in settings(pipeline(), short=True)[name]
    assert "TieredStopAtLevel" not in settings(pipeline())[name]


def test_paths_may_have_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark splits the options of the JVM like a shell."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    java_options = settings(pipeline())["spark.driver.extraJavaOptions"]
    java_options += f" {options_for(tmp_path / 'my archive')}"
    file, archive, *_ = shlex.split(java_options)
    assert Path(file.removeprefix("-Dlog4j2.configurationFile=")).is_file()
    assert archive == f"-XX:SharedArchiveFile={tmp_path}/my archive"


@pytest.mark.parametrize("before", [None, "/usr/lib/jvm/mine"])
def test_java_home_is_set_only_while_spark_starts(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", before)
    with _java_home(tmp_path):
        assert os.environ["JAVA_HOME"] == str(tmp_path)
    assert os.environ.get("JAVA_HOME") == before


def test_ctrl_c_waits_until_spark_has_started() -> None:
    def handler_of_spark(*args: object) -> None:
        pass

    def start() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.signal(signal.SIGINT, handler_of_spark)

    received_signals: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: received_signals.append(number))
    try:
        installed = signal.getsignal(signal.SIGINT)
        with _interrupted_later():
            start()
            assert not received_signals
        assert received_signals == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is installed

        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt), _interrupted_later():
            start()
        # Spark has started: its handler, which cancels running jobs, stays installed.
        assert signal.getsignal(signal.SIGINT) is handler_of_spark
    finally:
        signal.signal(signal.SIGINT, before)
