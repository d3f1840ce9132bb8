"""The process that generates the load on Kafka or Redis: `python -m bench.peer_driver Kafka|Redis PORT`.

It has the line protocol of `bench.driver`, and runs in an environment that has the clients of both and nothing of ours.
Rows are what applications of either have: JSON, encoded within the measured time, unless a workload states that the
bytes are made before. The clients are the usual ones of Python programs, with their defaults unless set here.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

LONE_POLL_SECONDS = 10.0
QUEUED_MESSAGES = 1_000_000
KEYS_PER_PIPELINE = 1_000
KEYS_PER_GET = 5_000
KEYS_PER_CALL = 50_000


def narrow_row(number: int) -> dict[str, Any]:
    """A row of five columns, as in `bench.driver`."""
    return {
        "id": number,
        "name": f"name {number % 1000}",
        "score": number / 7,
        "flag": number % 2 == 0,
        "count": number % 100,
    }


def wide_message(number: int) -> bytes:
    """The strings and numbers of `bench.driver.wide_batch`, as JSON."""
    row: dict[str, Any] = {f"i{column}": number * (column + 1) for column in range(4)}
    row |= {f"f{column}": number / (column + 3) for column in range(4)}
    for column in range(8):
        text = f"{column}:{number:012d} {(number * 2654435761) % 2**32:08x} user agent and request path of event "
        row[f"s{column}"] = text.ljust(102, "x")
    return json.dumps(row).encode()


class KafkaLoad:
    """Topics whose broker syncs every append (`flush.messages=1`), or leaves that to the system (the default)."""

    def __init__(self, port: int) -> None:
        self._kafka = importlib.import_module("confluent_kafka")
        self._administration = importlib.import_module("confluent_kafka.admin")
        self._servers = {"bootstrap.servers": f"127.0.0.1:{port}"}
        self._admin = self._administration.AdminClient(self._servers)
        self._wide = [wide_message(number) for number in range(16_000)]

    def _create(self, topic: str, synced: bool) -> None:
        config = {"flush.messages": "1"} if synced else {}
        made = self._admin.create_topics(
            [self._administration.NewTopic(topic, num_partitions=1, replication_factor=1, config=config)]
        )
        made[topic].result()

    def _producer(self, **settings: Any) -> Any:
        common = {**self._servers, "acks": "all", "compression.type": "zstd"}
        return self._kafka.Producer({**common, "queue.buffering.max.messages": QUEUED_MESSAGES, **settings})

    def drop(self, table: str) -> dict[str, float]:
        """Drop a topic."""
        self._admin.delete_topics([table])[table].result()
        return {}

    def append_rows(self, table: str, rows: int, synced: bool) -> dict[str, float]:
        """Append rows of five columns, encoded one by one, until the last is acknowledged."""
        self._create(table, synced)
        sample = [narrow_row(number) for number in range(10_000)]
        producer = self._producer()
        started = time.perf_counter()
        for number in range(rows):
            producer.produce(table, json.dumps(sample[number % len(sample)]))
            if not number % 1_000:
                producer.poll(0)
        left = producer.flush()
        return {"rows": rows - left, "seconds": time.perf_counter() - started}

    def append_bytes(self, table: str, rows: int, synced: bool) -> dict[str, float]:
        """Append messages of 1 KB that are made before."""
        self._create(table, synced)
        producer = self._producer()
        started = time.perf_counter()
        for number in range(rows):
            while True:
                try:
                    producer.produce(table, self._wide[number % len(self._wide)])
                    break
                except BufferError:
                    producer.poll(0.01)
        left = producer.flush()
        return {"rows": rows - left, "seconds": time.perf_counter() - started}

    def lone_rows(self, table: str, times: int, synced: bool) -> dict[str, list[float]]:
        """Append one row at a time: until it is acknowledged, then until a polling consumer has it. No batching."""
        self._create(table, synced)
        producer = self._producer(**{"linger.ms": 0})
        consumer = self._kafka.Consumer({**self._servers, "group.id": "lone", "enable.auto.commit": False})
        consumer.assign([self._kafka.TopicPartition(table, 0, 0)])
        acknowledged: list[float] = []
        polled: list[float] = []
        try:
            for number in range(times + 1):  # the first pays what is only done once
                started = time.perf_counter()
                producer.produce(table, json.dumps(narrow_row(number)))
                producer.flush()
                acknowledged.append(time.perf_counter() - started)
            self._wait_for(consumer, times + 1)
            for number in range(times):
                started = time.perf_counter()
                producer.produce(table, json.dumps(narrow_row(number)))
                self._wait_for(consumer, 1)
                polled.append(time.perf_counter() - started)
                producer.flush()
        finally:
            consumer.close()
        return {"acknowledged": acknowledged[1:], "polled": polled}

    @staticmethod
    def _wait_for(consumer: Any, rows: int) -> None:
        for _ in range(rows):
            message = consumer.poll(LONE_POLL_SECONDS)
            if message is None or message.error() is not None:
                raise RuntimeError(f"a row did not arrive: {message and message.error()}")


class RedisLoad:
    """Rows as JSON under their keys. Whether they are synced is the server's setting."""

    def __init__(self, port: int) -> None:
        self._redis = importlib.import_module("redis").Redis(host="127.0.0.1", port=port)

    def drop(self, table: str) -> dict[str, float]:
        """Delete everything: a server has one table at a time."""
        self._redis.flushall()
        return {}

    def upsert_rows(self, table: str, rows: int) -> dict[str, float]:
        """Write new keys in pipelines of a thousand, until the last is acknowledged."""
        made = [narrow_row(number) for number in range(rows)]
        started = time.perf_counter()
        for first in range(0, rows, KEYS_PER_PIPELINE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for row in made[first : first + KEYS_PER_PIPELINE]:
                    pipeline.set(f"{table}:{row['id']}", json.dumps(row))
                pipeline.execute()
        return {"rows": rows, "seconds": time.perf_counter() - started}

    def lone_rows(self, table: str, times: int) -> dict[str, list[float]]:
        """Write one row at a time until it is acknowledged."""
        taken = []
        for number in range(times + 1):
            started = time.perf_counter()
            self._redis.set(f"{table}:lone", json.dumps(narrow_row(number)))
            taken.append(time.perf_counter() - started)
        return {"acknowledged": taken[1:]}

    def lookup_alone(self, table: str, keys: int, times: int) -> dict[str, list[float]]:
        """Look up random keys, one at a time, as rows."""
        choice, taken = random.Random(7), []
        for _ in range(times + 1):
            key = choice.randrange(keys)
            started = time.perf_counter()
            row = json.loads(self._redis.get(f"{table}:{key}"))
            taken.append(time.perf_counter() - started)
            if row["id"] != key:
                raise RuntimeError(f"key {key} has the row {row}")
        return {"times": taken[1:]}

    def lookup_many(self, table: str, keys: int, seconds: float) -> dict[str, float]:
        """Look up fifty thousand random keys, as rows, by MGET with the fastest number of keys."""
        choice, done = random.Random(7), 0
        wanted = [f"{table}:{choice.randrange(keys)}" for _ in range(KEYS_PER_CALL)]
        started = time.perf_counter()
        while not done or time.perf_counter() - started < seconds:
            for first in range(0, len(wanted), KEYS_PER_GET):
                found = self._redis.mget(wanted[first : first + KEYS_PER_GET])
                done += len([json.loads(text) for text in found])
        return {"rows": done, "seconds": time.perf_counter() - started}


def serve(load: KafkaLoad | RedisLoad) -> None:
    """Handle lines until standard input ends."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        workload: Callable[..., dict[str, Any]] = getattr(load, message.pop("workload"))
        try:
            answer = workload(**message)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    kind, at = sys.argv[1], int(sys.argv[2])
    serve(KafkaLoad(at) if kind == "Kafka" else RedisLoad(at))
