"""Copies paid orders to a second log, and keeps the newest order of each customer by key. Spark runs this file."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()
SERVER = {"bootstrap.servers": str(spark.conf.get("pipeline.bootstrap.servers"))}


def orders() -> DataFrame:
    """The log table, as a stream from its first row."""
    return spark.readStream.format("fluss").options(**SERVER, start="earliest").load("shop.orders")


dp.create_sink("paid_orders", "fluss", {**SERVER, "table": "shop.paid_orders"})
dp.create_sink("last_orders", "fluss", {**SERVER, "table": "shop.last_orders"})


@dp.append_flow(target="paid_orders")
def paid() -> DataFrame:
    """Paid orders, appended exactly once, even if the pipeline dies and runs again."""
    return orders().where("paid").select("id", "customer", "amount")


@dp.append_flow(target="last_orders")
def last() -> DataFrame:
    """Orders upserted by customer: the table has the newest order of each customer."""
    return orders().select("customer", "id", sf.round("amount", 2).alias("amount"))
