"""The text of `plan`, compared with `plan.txt`."""

from pathlib import Path

from penstock.core.ids import TopicPartition
from penstock.spark.check.plan import plan
from penstock.spark.database_url import without_password
from penstock.spark.pipeline.yaml_file import parse
from penstock.spark.progress import SourceOffsets

HERE = Path(__file__).parent


def test_the_plan_of_a_pipeline() -> None:
    text = (HERE / "plan.yml").read_text()
    spec, problems = parse(text, "/flows/pipeline.yml", variables={"DB_PASSWORD": "secret"})
    assert spec is not None
    assert problems == []

    text_of_plan = plan(
        spec,
        partitions={"clicks": 3, "ads": 1},
        progress={
            "clicks.per_minute": {
                "clicks": SourceOffsets(
                    {TopicPartition("clicks", 1): 17, TopicPartition("clicks", 0): 4}
                )
            }
        },
    )

    assert "secret" not in text_of_plan
    assert max(map(len, text_of_plan.splitlines())) <= 100
    assert text_of_plan == (HERE / "plan.txt").read_text()


def test_passwords_are_not_shown() -> None:
    assert without_password("postgresql://u:p%40ss@h/d") == "postgresql://u:***@h/d"
    assert without_password("sqlite:///a.db") == "sqlite:///a.db"
    # SQLAlchemy takes everything up to the @ for the password.
    assert without_password("mysql://u:a/b:c d@h/d") == "mysql://u:***@h/d"
    assert without_password("postgresql:///d?user=u&password=x&host=h") == (
        "postgresql:///d?user=u&password=***&host=h"
    )
