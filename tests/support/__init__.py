"""Code that tests share, grouped by subject. A helper that one folder of tests needs stays in that folder.

    runner    pytest plug-ins: lanes, time limits, reruns, what a failure prints
    servers   servers that listen: the targets of the contract, restartable, counted and scripted ones
    harness   coordinator and tablet without sockets, called directly
    storage   logs, catalogs and files, and disks that fail
    tables    tables filled and read back through clients, and workloads that survive crashes
    lake      tables with a lake: written, tiered, maintained, read
    values    values, rows and batches: random, invalid, and as other implementations write them
    spark     Spark programs, queries and readers, a cluster of processes
    peers     other systems that only tests need

What benchmarks and tools need as well is in `tools/servers`, `tools/peers` and `tools/waiting.py`.
"""
