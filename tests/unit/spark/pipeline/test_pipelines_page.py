"""The examples of docs/pipelines.md work as shown."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.core.errors import KafkaError
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


def test_the_file_is_valid() -> None:
    assert validate(_from_file()) == []


def test_the_python_builds_the_same_pipeline() -> None:
    first, more = _blocks("python")
    names: dict[str, object] = {}
    exec(first, names)  # noqa: S102 (it is our own page)
    pipeline = names["p"]
    assert isinstance(pipeline, Pipeline)
    assert plan(pipeline.spec) == plan(_from_file()).replace(" (pipeline.yml)", "")
    exec(more, names)  # noqa: S102
    assert pipeline.validate() == []
    assert [sink.name for sink in pipeline.spec.sinks] == ["per_minute", "located", "rare"]


def test_the_plan_is_as_shown() -> None:
    (shown,) = re.findall(r"```\n(query .*?)```", PAGE, re.DOTALL)
    whole = plan(_from_file(), partitions={"clicks": 3})
    for line in shown.splitlines():
        assert line.removesuffix("…").strip() in whole


class _Topics:
    def names(self) -> Sequence[str]:
        return ["clicks"]

    def partitions(self, topics: Sequence[str]) -> Mapping[str, int | KafkaError]:
        return {"clicks": 3}

    def creates_missing(self) -> bool:
        return True


def test_the_problems_are_as_shown() -> None:
    """The example with a misspelt topic, a misspelt column and a missing key."""
    (text,) = _blocks("yaml")
    text = text.replace("topic: clicks\n", "topic: clciks\n")
    text = text.replace("minute, city, count", "minute, citi, count")
    text = text.replace("GROUP BY window(at, '1 minute'), city", "GROUP BY city")
    spec, _ = parse(text, "pipeline.yml", variables={})
    assert spec is not None
    problems = [str(problem) for problem in validate(spec, topics=_Topics())]
    (shown,) = re.findall(r"```\n(line .*?)```", PAGE, re.DOTALL)
    for line in shown.splitlines():
        assert any(p.startswith(line.removesuffix("…")) for p in problems), (line, problems)


def test_the_example_of_dead_letters_is_valid() -> None:
    page = (Path(__file__).parents[4] / "docs" / "dead-letters.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    spec, problems = parse(text, "pipeline.yml", variables={})
    assert spec is not None
    assert problems == []
    assert validate(spec) == []
