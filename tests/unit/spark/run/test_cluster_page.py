"""The examples of docs/pipelines-cluster.md are right."""

import re
from pathlib import Path

import pytest

from penstock.spark.check.validate import validate
from penstock.spark.pipeline.yaml_file import parse
from penstock.spark.run.session import settings

PAGE = (Path(__file__).parents[4] / "docs" / "pipelines-cluster.md").read_text()
EXAMPLES: list[str] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(
    ("number", "master"), [(0, "spark://spark1:7077"), (1, "yarn"), (2, "k8s://https://")]
)
def test_an_example_is_right(
    number: int, master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec, problems = parse(EXAMPLES[number], "pipeline.yml", variables={"DB_PASSWORD": "x"})
    assert problems == []
    assert spec is not None
    assert validate(spec) == []
    assert settings(spec)["spark.master"].startswith(master)
    assert spec.checkpoint.startswith(("/mnt/", "hdfs:///", "s3a://"))


def test_each_kind_of_cluster_has_an_example() -> None:
    assert len(EXAMPLES) == 3
