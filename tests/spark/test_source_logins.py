"""Logins of Spark's source and sink (X2, D1)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client import Admin
from tests.support.broker.in_process import running_broker
from tests.support.broker.logins import SASL_SETTINGS
from tests.support.kerberos.kdc import broker_settings, krb5_login_module, realm_of_this_process
from tests.support.oauth.provider import SECRET, running_provider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_source_and_sink_log_in_with_oauthbearer(spark: "SparkSession", tmp_path: Path) -> None:
    with running_provider() as provider:
        settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **provider.broker_settings()}
        with running_broker(tmp_path, settings) as broker:
            options = {
                "kafka.bootstrap.servers": f"127.0.0.1:{broker.addresses[0].port}",
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
                "kafka.sasl.oauthbearer.client.credentials.client.id": "ann",
                "kafka.sasl.oauthbearer.client.credentials.client.secret": SECRET,
            }
            rows = spark.sql("SELECT CAST(id AS STRING) AS value FROM range(3)")
            rows.write.format("penstock").options(topic="orders", **options).mode("append").save()
            read = spark.read.format("penstock").options(subscribe="orders", **options).load()
            assert sorted(row.value for row in read.collect()) == [b"0", b"1", b"2"]


@pytest.mark.long
def test_source_and_sink_log_in_with_gssapi(tmp_path: Path) -> None:
    with realm_of_this_process() as realm:
        realm.add("ann")
        with running_broker(tmp_path, broker_settings(realm)) as broker:
            options = {
                "kafka.bootstrap.servers": f"localhost:{broker.addresses[0].port}",
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "GSSAPI",
                "kafka.sasl.kerberos.service.name": "kafka",
                "kafka.sasl.jaas.config": krb5_login_module(realm.keytab("ann"), "ann"),
            }
            run = subprocess.run(
                [sys.executable, "-m", "tests.support.spark.login_job", json.dumps(options)],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
    assert run.returncode == 0, run.stderr[-4000:]
    assert json.loads(run.stdout.splitlines()[-1]) == ["0", "1", "2"]


@pytest.mark.long
def test_source_and_sink_log_in_with_a_delegation_token(
    spark: "SparkSession", tmp_path: Path
) -> None:
    settings = {**SASL_SETTINGS, "delegation.token.secret.key": "the brokers' own"}
    with running_broker(tmp_path, settings) as broker:
        (port,) = (item.port for item in broker.addresses if item.listener == "SASL_PLAINTEXT")
        with Admin(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="ann",
            sasl_plain_password="ann-secret",
        ) as admin:
            token = admin.create_delegation_token()
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{port}",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{token.token_id}" password="{token.password}" tokenauth="true";'
            ),
        }
        rows = spark.sql("SELECT CAST(id AS STRING) AS value FROM range(3)")
        rows.write.format("penstock").options(topic="orders", **options).mode("append").save()
        read = spark.read.format("penstock").options(subscribe="orders", **options).load()
        assert sorted(row.value for row in read.collect()) == [b"0", b"1", b"2"]
