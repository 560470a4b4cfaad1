"""The orders of a lake as two tables: the present documents, and all versions of them.

A source file of a declarative pipeline: of Lakeflow on Databricks, or of Spark 4.3 with a table
format that supports MERGE. The pipeline's settings name the lake (spark.tailrace.lake).
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from tailrace.spark import register

spark = SparkSession.active()
register(spark)


@dp.temporary_view
def order_changes() -> DataFrame:
    reader = spark.readStream.format("tailrace").option(
        "lake", spark.conf.get("spark.tailrace.lake")
    )
    return reader.options(view="changes", collections="shop.orders").load()


dp.create_streaming_table("orders")
dp.create_auto_cdc_flow(
    target="orders",
    source="order_changes",
    keys=["key"],
    sequence_by="sequence",
    apply_as_deletes="operation = 'delete'",
    column_list=["key", "document", "cluster_time"],
    stored_as_scd_type=1,
)

dp.create_streaming_table("orders_history")
dp.create_auto_cdc_flow(
    target="orders_history",
    source="order_changes",
    keys=["key"],
    sequence_by="sequence",
    apply_as_deletes="operation = 'delete'",
    column_list=["key", "document", "cluster_time"],
    stored_as_scd_type=2,
)
