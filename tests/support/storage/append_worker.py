"""A process that appends to a bucket log until it is killed.

Run as `python -m tests.support.storage.append_worker DIRECTORY SEGMENT_BYTES START`. It prints one line per
acknowledged batch: its sequence. Every batch holds its sequence as payload; sequences go on at START.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fluss.errors import FlussError
from fluss.server.storage.log.options import LogOptions
from tests.support.storage.bucket_logs import LogBench, batch_of

IN_FLIGHT = 5
WRITER = 1


def main(directory: str, segment_bytes: int, start: int) -> None:
    options = LogOptions(segment_bytes=segment_bytes, checkpoint_bytes=5000)
    bench = LogBench(Path(directory), options=options)
    log = bench.open()
    answered = start

    def acknowledge(error: FlussError | None) -> None:
        nonlocal answered
        if error is not None:
            raise SystemExit(str(error))
        sys.stdout.write(f"{answered}\n")
        sys.stdout.flush()
        answered += 1

    def there_is_room() -> bool:
        return sequence - answered < IN_FLIGHT

    sequence = start
    while True:
        payload = sequence.to_bytes(8, "little") * (1 + sequence % 50)
        batch = batch_of(1, payload=payload, writer_id=WRITER, sequence=sequence)
        bench.append(log, batch).add_durable(acknowledge)
        sequence += 1
        bench.loop.run_until(there_is_room)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
