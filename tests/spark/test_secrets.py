"""Nothing secret is shown: in plans, on pages, in errors, logs and files."""

import contextlib
import io
import logging
import pickle
import traceback
from pathlib import Path

import pytest

import penstock as ps
from penstock.model.errors import StoreError
from penstock.spark.sources.kafka import _consumer, client_settings
from penstock.spark.store.folder import folder_at
from tests.kafka import filled_topic
from tests.spark.streams import finish_batches
from tests.stores import BUCKET

SECRET = "hunter2"
CLIENT = {"sasl.password": f"{SECRET}-pass", "ssl.key.pem": f"{SECRET}-pem", "client.id": f"{SECRET}-id"}
# As Spark's own Kafka options would be, these are no options that Spark knows to hide.
SETTINGS = {"key": f"{SECRET}-key", "secret": f"{SECRET}-secret", "token": f"{SECRET}-token"}


def explained(frame, mode):
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        frame.explain(mode=mode)
    return told.getvalue()


@pytest.mark.spark
def test_settings_of_a_kafka_client_and_of_a_store_stand_in_no_plan(spark, s3, tmp_path):
    def shedding(checkpoint):
        shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id=["partition", "offset"])
        return shedder, shedder.read_kafka(spark, servers="127.0.0.1:1", topic="clicks", client=CLIENT)

    checkpoint = ps.StorePath(f"s3a://{BUCKET}/clicks", endpoint_url=s3, **SETTINGS)
    (shedder, from_store), (local, events) = shedding(checkpoint), shedding(tmp_path)
    for frame in (from_store, events, events.transform(local)):
        plan = frame._jdf.queryExecution()
        shown = [explained(frame, mode) for mode in ("simple", "extended", "formatted", "cost")]
        shown += [plan.toString(), plan.logical().toJSON(), plan.analyzed().toJSON(), repr(frame)]
        assert all("penstock_kafka" in text for text in shown[1:2])
        assert not any(SECRET in text for text in shown)
    assert SECRET not in repr(checkpoint) + str(checkpoint) + repr(shedder._planner) + repr(vars(shedder))


@pytest.mark.spark
def test_sources_of_one_session_keep_their_own_settings(spark, tmp_path):
    names = []
    for number in (1, 2):
        shedder = ps.shed(latency_seconds=5, checkpoint=tmp_path / str(number), row_id="offset", weight=f"w.{number}")
        events = shedder.read_kafka(spark, servers="127.0.0.1:1", topic="clicks")
        names.append(events.columns[-1])
    assert names == ["w.1", "w.2"]


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.slow
def test_a_running_query_shows_and_stores_none_of_the_settings_of_its_client(kafka_spark, broker, checkpoint, tmp_path):
    topic, client = filled_topic(broker, [100, 50]), {"client.id": SECRET, "ssl.key.password": SECRET}
    shedder = ps.shed(latency_seconds=60, checkpoint=checkpoint, row_id=["partition", "offset"])
    events = shedder.read_kafka(kafka_spark, servers=broker.servers, topic=topic, starting="earliest", client=client)
    kept = events.transform(shedder).select("partition", "offset", "weight")
    run = shedder.start(kept.writeStream.format("parquet").option("path", str(tmp_path / "out")))
    (batch, *_) = finish_batches(run, 1)

    assert batch.kept == 150
    listed = kafka_spark._jsparkSession.sharedState().statusStore().executionsList()
    pages = [listed.apply(number) for number in range(listed.size())]
    shown = [f"{each.physicalPlanDescription()}{each.details()}{each.modifiedConfigs()}" for each in pages]
    assert any("penstock_kafka" in text or "MicroBatchScan" in text for text in shown)
    shown += [str(progress) for progress in run.query.recentProgress] + [repr(vars(run))]
    shown += [explained(kept, "extended"), run.query._jsq.toString()]
    assert not any(SECRET in text for text in shown)
    files = [file for folder in (checkpoint, tmp_path / "out") for file in Path(folder).rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]


def test_what_is_wrong_with_a_setting_is_said_without_it():
    with pytest.raises(ps.InvalidInputError) as refused:
        client_settings({"sasl.password": [SECRET]}, servers="127.0.0.1:1")
    assert "'sasl.password' of type list" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["security.protocol", "sasl.pasword"])
def test_a_setting_that_the_client_refuses_is_named_without_its_value(name):
    with pytest.raises(
        ps.InvalidInputError, match=rf"client refuses its settings .*{name[:7]}.*mend client"
    ) as refused:
        _consumer(client_settings({name: SECRET}, servers="127.0.0.1:1"))
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"s3a://AKIA:{SECRET}@bucket/clicks", r"s3a://\*\*\*@bucket/clicks"),
        (f"s3a://AKIA:{SECRET}/with/slashes@bucket/clicks", r"s3a://\*\*\*@bucket/clicks"),
        (f"s3a://{SECRET}@bucket/clicks", r"s3a://\*\*\*@bucket/clicks"),
        (f"hdfs://me:{SECRET}@namenode:8020/clicks", r"hdfs://\*\*\*@namenode:8020/clicks"),
        (f"gs://me:{SECRET}@bucket/clicks", r"gs://\*\*\*@bucket/clicks"),
        (f"s3a:/AKIA:{SECRET}@bucket/clicks", r"s3a:/\*\*\*@bucket/clicks"),
    ],
)
def test_an_address_with_credentials_is_refused_without_telling_them(address, shown):
    for give in (ps.StorePath, ps.Spill, lambda given: ps.shed(latency_seconds=5, checkpoint=given)):
        with pytest.raises(ps.InvalidInputError, match=shown) as refused:
            give(address)
        assert SECRET not in "".join(traceback.format_exception(refused.value))
        assert "StorePath(address, key=..., secret=...)" in str(refused.value)


@pytest.mark.parametrize("address", ["s3a://bucket/me@home/clicks", "hdfs://namenode:8020/me@home/clicks"])
def test_an_at_sign_in_a_folder_is_no_credential(address):
    assert str(ps.StorePath(address)) == address


def test_a_delegation_token_is_neither_in_the_error_nor_in_the_log_of_the_client(caplog):
    path = ps.StorePath("hdfs://127.0.0.1:1/clicks", webhdfs="http://127.0.0.1:1", token=SECRET)
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(StoreError, match=r"is not reached .*\?\.\.\.") as refused,
    ):
        folder_at(path).read("7.json")

    assert "Retrying" in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    assert SECRET not in repr(pickle.loads(pickle.dumps(path)))
