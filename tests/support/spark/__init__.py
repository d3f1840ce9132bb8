"""For tests of Spark: readers without Spark, streaming queries under Spark, and Spark programs that are killed.

Start with `local_reads` (a batch read planned and run in this process) and `stream_queries`.
"""
