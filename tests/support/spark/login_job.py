"""A Spark job in a process of its own: Python workers get the variables of Kerberos from it.

python -m tests.support.spark.login_job OPTIONS writes three records with the options, a JSON
object, reads them back and prints their values.
"""

import json
import sys

from tests.support.spark.session import spark_session


def main() -> None:
    options = json.loads(sys.argv[1])
    with spark_session() as spark:
        rows = spark.sql("SELECT CAST(id AS STRING) AS value FROM range(3)")
        rows.write.format("penstock").options(topic="orders", **options).mode("append").save()
        read = spark.read.format("penstock").options(subscribe="orders", **options).load()
        values = sorted(bytes(row.value).decode() for row in read.collect())
    sys.stdout.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
