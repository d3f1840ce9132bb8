"""How a child tells the supervisor that it lives: a pipe with one byte when it serves, and one every second.

While a role starts (recovery may take minutes without a pause for anything else) a thread beats; it shows that the
process runs. From then on the event loop beats: a loop that hangs, a process that is stopped, and a deadlock with
Python's lock held are silent alike. What follows from silence is decided by the supervisor alone.
"""

from __future__ import annotations

import asyncio
import os
import threading

from fluss.server.runtime.log_output import write_due_counts

BEAT_SECONDS = 1.0
READY, BEAT = b"r", b"b"


class HeartbeatSender:
    """A child's end of the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        os.set_blocking(pipe, False)
        self._serves = threading.Event()

    def beat_while_starting(self) -> None:
        """Beat from a thread until `ready`."""
        threading.Thread(target=self._beat_until_ready, name="heart", daemon=True).start()

    def ready(self) -> None:
        """The role serves."""
        self._serves.set()
        os.write(self._pipe, READY)

    async def beat(self) -> None:
        """Beat from the event loop until cancelled."""
        while True:
            self.beat_once()
            write_due_counts()
            await asyncio.sleep(BEAT_SECONDS)

    def _beat_until_ready(self) -> None:
        while not self._serves.wait(BEAT_SECONDS):
            self.beat_once()

    def beat_once(self) -> None:
        """One sign of life."""
        try:
            os.write(self._pipe, BEAT)
        except BlockingIOError:
            return  # the supervisor has not looked for hours, as after SIGSTOP; it finds enough beats when it does
