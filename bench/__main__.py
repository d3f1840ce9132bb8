"""`python -m bench [--client | --memory] ...`: the server, the client, or the memory of both."""

import sys

import bench.client
import bench.memory
import bench.run


def main(arguments: list[str]) -> None:
    """Hand over to the part that was asked for; without a choice the servers are compared."""
    for option, part in (("--client", bench.client.main), ("--memory", bench.memory.main)):
        if option in arguments:
            part([argument for argument in arguments if argument != option])
            return
    bench.run.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
