"""Heartbeats of a child to the supervisor: one byte through a pipe when it is ready, and one every second.

While a role starts (recovery may block for minutes), a thread sends the heartbeats, which show that the process runs.
From then on the event loop sends them: a hung loop, a stopped process and a deadlock that holds Python's lock all send
none. The supervisor alone decides what to do then.
"""

from __future__ import annotations

import asyncio
import os
import threading

from fluss.server.runtime.log_output import write_due_counts

BEAT_SECONDS = 1.0
READY, BEAT = b"r", b"b"


class HeartbeatSender:
    """Sends heartbeats through a child's end of the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        os.set_blocking(pipe, False)
        self._serves = threading.Event()

    def beat_while_starting(self) -> None:
        """Send heartbeats from a thread until `ready`."""
        threading.Thread(target=self._beat_until_ready, name="heart", daemon=True).start()

    def ready(self) -> None:
        """Report that the role serves."""
        self._serves.set()
        os.write(self._pipe, READY)

    async def beat(self) -> None:
        """Send heartbeats from the event loop until cancelled."""
        while True:
            self.beat_once()
            write_due_counts()
            await asyncio.sleep(BEAT_SECONDS)

    def _beat_until_ready(self) -> None:
        while not self._serves.wait(BEAT_SECONDS):
            self.beat_once()

    def beat_once(self) -> None:
        """Send one heartbeat."""
        try:
            os.write(self._pipe, BEAT)
        except BlockingIOError:
            return  # the supervisor has not read for hours, as after SIGSTOP; the pipe is full of heartbeats for it
