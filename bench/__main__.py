"""`python -m bench [--client | --kv | --spark | --lake | --growth | --memory] ...`: one part of the benchmarks."""

import sys

import bench.client
import bench.growth
import bench.kv
import bench.lake
import bench.memory
import bench.run
import bench.spark


def main(arguments: list[str]) -> None:
    """Hand over to the part that was asked for; without a choice the servers are compared."""
    parts = {
        "--client": bench.client.main,
        "--kv": bench.kv.main,
        "--spark": bench.spark.main,
        "--lake": bench.lake.main,
        "--growth": bench.growth.main,
        "--memory": bench.memory.main,
    }
    for option, part in parts.items():
        if option in arguments:
            part([argument for argument in arguments if argument != option])
            return
    bench.run.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
