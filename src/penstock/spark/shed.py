"""The user's side: shed a stream, start its query, and hold the handle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.governor import Governor
from penstock.model.errors import (
    InvalidInputError,
    require_choice,
    require_function,
    require_kind,
    require_name,
    require_seed,
    require_text,
    require_whole,
)
from penstock.policy.baseline import KeepAll, Uniform
from penstock.policy.contract import Policy, has_one_rate
from penstock.policy.strata.concept import ConceptDriven, require_batch_settings
from penstock.spark.answers.metrics import OUTPUT_METRICS
from penstock.spark.answers.outputs import WindowAggregate, Windows, answer_outputs, require_outputs
from penstock.spark.backfill.reach import Moment
from penstock.spark.backfill.result import Backfilled
from penstock.spark.checks import require_session, require_stream, require_writer
from penstock.spark.judge.each_batch import EachBatch
from penstock.spark.judge.marking import Marking
from penstock.spark.judge.sampling import stage_seed
from penstock.spark.judge.shed import ShedMarks
from penstock.spark.names import name_of, names_of, weight_of
from penstock.spark.plan.column import PlanColumns, plan_columns
from penstock.spark.plan.planner import ShedPlanner
from penstock.spark.run.handle import Run, start_run
from penstock.spark.run.recount import StreamRecount
from penstock.spark.sources.kafka import KafkaReader, client_settings, kafka_source
from penstock.spark.spill.options import Spill, to_spill
from penstock.spark.spill.spilling import Spilling
from penstock.spark.spill.writer import spill_shed
from penstock.spark.store.paths import Location, place


def shed(
    *,
    latency_seconds: float,
    checkpoint: Location,
    row_id: str | Sequence[str] = (),
    key: str | Sequence[str] = (),
    value: str | None = None,
    arrival: str | None = None,
    policy: Policy | None = None,
    weight: str = "weight",
    latency_of: Literal["oldest", "mean"] = "oldest",
    late_share: float = 0.05,
    probe_tuples: int = 20_000,
    grace_seconds: float = 60.0,
    seed: int = 0,
    name: str = "shed",
    spill: Location | Spill | None = None,
) -> Shedder:
    """Shed what does not fit, so that results leave within ``latency_seconds`` of a row's arrival.

    Apply the result to a streaming DataFrame with ``transform``, put any operators after it, and start the query
    through it. Every surviving row carries its weight; sum the weights to count.

    Parameters
    ----------
    latency_seconds
        Target from arrival to commit.
    checkpoint
        Folder of the query's checkpoint, or its address in HDFS or S3 (see
        :class:`~penstock.spark.store.paths.StorePath`); plan log and ledger live in it, so that they move with it.
    row_id
        Column or columns that identify a row (Kafka: partition and offset). The fate of a row hangs on their hash
        alone: rows with the same id survive together. By default all columns that can be hashed.
    key
        Column or columns for keep rates by key; see :class:`~penstock.policy.priority.Priority`.
    value
        Numeric column whose spread ``ConceptDriven(rule="neyman", passes=2)`` goes by.
    arrival
        Timestamp column that says when a row arrived; latency is then measured, not bounded.
    policy
        What to drop under overload; :class:`~penstock.policy.baseline.Uniform` by default.
    weight
        Name of the weight column. If the stream has it already, weights multiply.
    latency_of, late_share, probe_tuples, grace_seconds
        See :class:`~penstock.control.governor.Governor`.
    seed
        Another seed keeps other rows.
    name
        Names the plan log within the checkpoint and the metrics in Spark's progress.
    spill
        Folder in which shed rows are stored as Parquet while they are shed, or a
        :class:`~penstock.spark.spill.options.Spill` that says more. By default they are only counted.

    Examples
    --------
    >>> import penstock as ps
    >>> from pyspark.sql import functions as F
    >>> spark = ps.local_session()
    >>> events = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    >>> import tempfile
    >>> shedder = ps.shed(latency_seconds=5, checkpoint=tempfile.mkdtemp(), row_id="value", arrival="timestamp")
    >>> counts = events.transform(shedder).groupBy(F.col("value") % 3).agg(F.sum("weight"))
    >>> with shedder.start(counts.writeStream.format("noop").outputMode("update")) as run:
    ...     first = next(run.watch())
    >>> first.offered == first.kept + first.shed
    True
    """
    governor = Governor(
        latency_seconds=latency_seconds,
        policy=Uniform() if policy is None else policy,
        latency_of=latency_of,
        late_share=late_share,
        probe_tuples=probe_tuples,
        grace_seconds=grace_seconds,
    )
    require_name(name)
    require_seed(seed)
    ids, keys = names_of("row_id", row_id), names_of("key", key)
    value, arrival = name_of("value", value), name_of("arrival", arrival)
    if isinstance(governor.policy, ConceptDriven):
        require_batch_settings(governor.policy, value=value)
    return Shedder(
        planner=ShedPlanner(checkpoint=place(checkpoint), governor=governor, name=name, value=value),
        marking=partial(
            Marking,
            row_id=ids,
            key=keys,
            value=value,
            arrival=arrival,
            weight=weight_of(weight, beside=(*ids, *keys, value, arrival)),
            seed=seed,
            sample_keys=isinstance(governor.policy, ConceptDriven) and governor.policy.passes == 1,
        ),
        spill=to_spill(spill),
    )


class Shedder(Spilling):
    """What :func:`shed` returns: a transformation of a streaming DataFrame, and the way to start its query."""

    CALLED = ("shedder", "shed")
    _planner: ShedPlanner

    def __init__(self, *, planner: ShedPlanner, marking: Callable[..., Marking], spill: Spill | None = None) -> None:
        super().__init__(planner=planner, spill=spill)
        self._marking_with = marking
        self._plan: PlanColumns | None = None

    @cached_property
    def _marking(self) -> Marking:
        """How rows are marked, with the salt that the checkpoint has, or will have once the query has started."""
        return self._marking_with(salt=self._planner.log.salt())

    def __call__(self, events: DataFrame) -> DataFrame:
        """Drop, in every micro-batch, what the plan of that batch says; for ``events.transform(shedder)``."""
        if getattr(self._planner.governor.policy, "passes", 1) == 2:
            raise InvalidInputError(
                "a policy with passes=2 reads each batch twice, which only start_each_batch can do; start the query "
                "with shedder.start_each_batch(...), or use passes=1"
            )
        self._accept(events)
        plan = self._plan = plan_columns(events.sparkSession, self._planner, rates=self._rates())
        marked = self._marking.mark(events, threshold=plan.threshold, table=plan.table, sample=plan.sample)
        counted = marked.observe(self._planner.name, *self._marking.counts(marked))
        if self._spill is not None:
            counted = spill_shed(counted, spill=self._spill, planner=self._planner, marking=self._marking)
        return self._marking.survivors(counted)

    def answers(
        self, *outputs: WindowAggregate, time: str, window: str, slide: str | None = None
    ) -> Callable[[DataFrame], DataFrame]:
        """Answer several window aggregates of the shed stream in one query, each sampled at a rate of its own.

        For ``kept.transform(shedder.answers(...))``; between shedding and answers any shared operators may stand, as
        long as they keep the row id, the time and the weight. With the policy
        :class:`~penstock.policy.least_error.LeastError` every output is sampled so that the worst error of all is
        least; with any other they share the common rate.

        Parameters
        ----------
        outputs
            What to answer.
        time
            Event time; give it a watermark before, as for any window.
        window, slide
            Length of the windows, and how far one is from the next, as in ``"10 minutes"``.

        Returns
        -------
        A frame with ``window``, ``output``, ``group`` and the struct ``answer``; see :func:`penstock.sum`.
        """
        require_outputs(outputs)
        windows = Windows(time=time, length=window, slide=slide)

        def transform(kept: DataFrame) -> DataFrame:
            if self._plan is None:
                raise InvalidInputError("nothing was shed yet; build the answers on events.transform(shedder)")
            metrics = f"{self._planner.name}{OUTPUT_METRICS}"
            return answer_outputs(
                kept,
                plan=self._plan,
                marking=self._marking,
                outputs=outputs,
                windows=windows,
                metrics=metrics,
            )

        return transform

    def read_kafka(
        self,
        spark: SparkSession,
        *,
        servers: str,
        topic: str | Sequence[str],
        starting: str = "latest",
        tasks: int | None = None,
        client: Mapping[str, str | int | bool] | None = None,
    ) -> DataFrame:
        """Read Kafka topics in such a way that a backlog too large to be read is passed over in part, and counted.

        Use it in place of Spark's own Kafka source; the columns are the same (``key``, ``value``,
        ``topic``, ``partition``, ``offset``, ``timestamp``), and a column of weights. See ``docs/kafka.md``.

        Parameters
        ----------
        spark
            The session.
        servers
            Addresses of the brokers, as ``host:port,host:port``.
        topic
            Topic or topics.
        starting
            Where a new query starts: ``"latest"`` or ``"earliest"``.
        tasks
            Tasks that read, each an equal share of a batch; by default as many as shuffle partitions.
        client
            Further settings of the Kafka client (librdkafka's names), such as those for TLS.
        """
        require_session(spark)
        require_text("servers", servers, meaning="where the brokers are, as in 'host:9092,host:9092'")
        require_choice("starting", starting, ("latest", "earliest"), meaning="where a new query starts")
        if tasks is not None:
            require_whole("tasks", tasks, meaning="how many tasks read")
        topics = names_of("topic", topic)
        if not topics:
            raise InvalidInputError("topic names no topic; name one or several, as in topic='clicks'")
        settings = client_settings(client, servers=servers)
        reader = KafkaReader(
            topics=topics,
            client=settings,
            starting=starting,
            log=self._planner.log.path,
            # Reading is decided by what rows cost, whatever decides on rows that were read.
            governor=replace(self._planner.governor, policy=KeepAll()),
            tasks=tasks or int(str(spark.conf.get("spark.sql.shuffle.partitions"))),
            weight=self._marking.weight,
            draw=stage_seed(self._marking.salt, "blocks", seed=self._marking.seed),
        )
        source = kafka_source(reader)
        spark.dataSource.register(source)
        return spark.readStream.format(source.name()).load()

    def start(self, writer: DataStreamWriter) -> Run:
        """Start the query that was built on the shed stream, and control it.

        The writer needs no checkpoint location: it gets the shedder's.
        """
        if self._events is None:
            raise InvalidInputError("nothing was shed yet; build the query on events.transform(shedder), then start it")
        require_writer(writer)
        return self._run(self._events, writer)

    def start_each_batch(
        self,
        events: DataFrame,
        write: Callable[[DataFrame, int], Any],
        *,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
    ) -> Run:
        """Start a query whose surviving rows go to a function batch by batch, with the plan as literals.

        For stateless queries whose sink is code: what follows the shedding runs inside ``write(kept_rows, batch_id)``,
        and the plan is part of the batch's own query instead of a subquery.

        Parameters
        ----------
        events
            The stream as it comes, not shed.
        write
            Gets the surviving rows of each batch, weighted. The first action that it runs on them is the one that is
            counted, so that must read them all: not ``isEmpty``, ``first`` or ``limit``.
        trigger
            Arguments of ``DataStreamWriter.trigger``, as in ``{"processingTime": "1 second"}``.
        query_name
            Name of the query in Spark.
        """
        require_function("write", write, meaning="what gets the surviving rows of each batch: write(rows, batch_id)")
        if trigger is not None:
            require_kind("trigger", trigger, Mapping, called="a mapping", example="{'processingTime': '1 second'}")
        if query_name is not None:
            require_text("query_name", query_name, meaning="the name of the query in Spark")
        self._accept(events)
        writer = events.writeStream.foreachBatch(
            EachBatch(planner=self._planner, marking=self._marking, spill=self._spill, write=write).__call__
        )
        if trigger:
            writer = writer.trigger(**trigger)
        return self._run(events, writer.queryName(query_name) if query_name else writer)

    def backfill(
        self,
        query: Callable[[DataFrame], DataFrame],
        *,
        window: Column,
        into: Location,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Backfilled:
        """Answer again, exactly, for every window in which rows were sampled.

        A batch that shed is taken from the spill, if all of its rows are there (``Spill(rows="all")``). Else it is read
        again from the source, as a replay would read it, and its rows are stored as Parquet in ``into``/rows, with what
        was shed and what sampled, batch, arc and reason. So are batches beside it that hold rows of the same windows.
        Then the query runs over them with every weight at 1. What is stored already is not read again, so a backfill
        that was cut short goes on where it was. A batch that is gone is passed over: windows that may lack its rows are
        not answered, and the result names both. See ``docs/backfill.md``.

        Parameters
        ----------
        query
            What follows the shedding: the function that was applied to ``events.transform(shedder)``.
        window
            The window of a row, as in ``F.window("timestamp", "10 seconds")``.
        into
            Folder for the rows and the exact answers.
        since, until
            Answer only windows that start in this stretch of event time, ``until`` not included: moments, or texts that
            say them. By default all.
        """
        mark = ShedMarks(marking=self._marking)
        return self._backfill(query, window=window, into=into, since=since, until=until, mark=mark)

    def _rates(self) -> Literal["one", "by output", "by key"]:
        """What rates the plans of this query may hold, those of batches that another policy planned included."""
        if self._marking.key:
            return "by key"
        if has_one_rate(self._planner.governor.policy) and not self._planner.log.replays_rates():
            return "one"
        return "by output"

    def _run(self, events: DataFrame, writer: DataStreamWriter) -> Run:
        # Plans that a replay would need are read now: a damaged one is better named before the query starts.
        self._planner.log.verify()
        tidy, marking = self._tidying(), self._marking
        self._planner.log.pin_sampling(
            {
                "row_id": list(marking.row_id),
                "key": list(marking.key),
                "seed": marking.seed,
                "salt": marking.salt,
                "weight": marking.weight,
            }
        )
        return start_run(
            spark=events.sparkSession,
            writer=writer,
            planner=self._planner,
            recount=StreamRecount(events=events, planner=self._planner, marking=marking),
            tidy=tidy,
        )

    def _accept(self, events: DataFrame) -> None:
        if self._events is not None:
            raise InvalidInputError(
                "this shedder is already applied to a stream; a second stream needs its own shed(...) and checkpoint"
            )
        require_stream("what is shed", events, otherwise=", or df.sample here")
        if self._marking.key == () and _has_rates_per_key(self._planner.governor.policy):
            raise InvalidInputError("the policy has rates per key, but no key column was named; give shed(key=...)")
        self._marking.check(events)
        self._check_storable(events)
        self._events = events


def _has_rates_per_key(policy: Policy) -> bool:
    return isinstance(policy, ConceptDriven) or isinstance(getattr(policy, "keep", None), Mapping)
