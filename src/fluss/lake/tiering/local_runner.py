"""Runs splits in threads of this process: reading and writing Parquet release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from fluss.client.engine.engine import Engine
from fluss.lake.tiering.split_tasks import tier_split
from fluss.lake.tiering.task_values import SplitResult, SplitWork, TableWork


class LocalRunner:
    """Runs splits in one pool of threads for all tables; close it when no round is running."""

    name = "this process"

    def __init__(self, engine: Engine, threads: int) -> None:
        self._engine = engine
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fluss-tier")

    def run(
        self, work: TableWork, splits: Sequence[SplitWork], on_result: Callable[[SplitResult], None]
    ) -> list[SplitResult]:
        """Run the splits and return all results; a bug in the program is raised after every split has ended."""
        waiting: set[Future[SplitResult]] = {
            self._pool.submit(tier_split, self._engine, work, split) for split in splits
        }
        results: list[SplitResult] = []
        trouble: BaseException | None = None
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                error = future.exception()
                if error is not None:
                    trouble = error
                    continue
                results.append(future.result())
                on_result(results[-1])
        if trouble is not None:
            raise trouble
        return results

    def close(self) -> None:
        """End the threads after their splits are done."""
        self._pool.shutdown()
