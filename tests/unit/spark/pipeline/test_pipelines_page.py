"""The examples of docs/pipelines.md are right."""

import re
from pathlib import Path

from penstock.spark import Pipeline
from penstock.spark.check.plan import plan
from penstock.spark.check.validate import validate
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.pipeline.yaml_file import parse

PAGE = (Path(__file__).parents[4] / "docs" / "pipelines.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def _from_file() -> PipelineSpec:
    (text,) = _blocks("yaml")
    spec, problems = parse(text, "pipeline.yml", variables={})
    assert spec is not None
    assert problems == []
    return spec


def test_the_file_is_right() -> None:
    assert validate(_from_file()) == []


def test_the_python_is_the_same_and_right() -> None:
    first, more = _blocks("python")
    names: dict[str, object] = {}
    exec(first, names)  # noqa: S102 (it is our own page)
    made = names["p"]
    assert isinstance(made, Pipeline)
    assert plan(made.spec) == plan(_from_file()).replace(" (pipeline.yml)", "")
    exec(more, names)  # noqa: S102
    assert made.validate() == []
    assert [each.name for each in made.spec.sinks] == ["per_minute", "located", "rare"]


def test_the_plan_is_as_shown() -> None:
    (shown,) = re.findall(r"```\n(query .*?)```", PAGE, re.DOTALL)
    whole = plan(_from_file(), partitions={"clicks": 3})
    for line in shown.splitlines():
        assert line.removesuffix("…").strip() in whole
