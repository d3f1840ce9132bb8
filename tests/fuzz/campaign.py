"""A fuzz campaign against a live server: attackers send frames, a witness is served meanwhile, memory is watched."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil

from fluss.errors import FlussError
from fluss.protocol.frames import LENGTH_BYTES, TYPE_ERROR, TYPE_SUCCESS, read_length
from tests.fuzz.frame_maker import FrameMaker
from tools.waiting import patience

FRAMES_PER_BURST = 200
LAST_WORDS_CHANCE = 0.3
# How much of the campaign passes before memory is first looked at: caches and pools are full by then.
WARM_UP_SHARE = 0.1
ANSWER_TIMEOUT_SECONDS = patience(60.0)
WITNESS_PAUSE_SECONDS = 0.02


@dataclass
class Outcome:
    """What happened."""

    frames: int = 0
    answers: int = 0
    successes: int = 0
    closed_by_server: int = 0
    unanswered_bursts: int = 0
    witness_calls: int = 0
    slowest_witness_seconds: float = 0.0
    witness_errors: list[str] = field(default_factory=list)
    resident_bytes: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        megabytes = [round(value / 1e6, 1) for value in self.resident_bytes]
        return (
            f"{self.frames} frames, {self.successes} of {self.answers} answers were successes, the witness made "
            f"{self.witness_calls} calls (slowest {self.slowest_witness_seconds:.3f} s), resident MB {megabytes}"
        )

    @property
    def growth_bytes(self) -> int:
        """Growth of resident memory after the warm-up."""
        return self.resident_bytes[-1] - self.resident_bytes[0]


class Attacker:
    """One connection after the other to one address; sends bursts and takes the answers."""

    def __init__(self, address: tuple[str, int], maker: FrameMaker, seed: int) -> None:
        self._address = address
        self._maker = maker
        self._random = random.Random(seed)
        self._socket: socket.socket | None = None

    def burst(self, outcome: Outcome) -> None:
        """Send one burst and wait for one answer per frame."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, ANSWER_TIMEOUT_SECONDS)
        frames = [self._maker.frame(number) for number in range(FRAMES_PER_BURST)]
        outcome.frames += len(frames)
        try:
            sender = threading.Thread(target=self._send, args=(self._socket, b"".join(frames)))
            sender.start()
            answers = self._take_answers(self._socket, len(frames))
            outcome.answers += len(answers)
            outcome.successes += answers.count(TYPE_SUCCESS)
            sender.join()
            if self._random.random() < LAST_WORDS_CHANCE:
                self._say_last_words(outcome)
        except TimeoutError:
            outcome.unanswered_bursts += 1
            self.close()
        except (ConnectionError, EOFError):
            outcome.closed_by_server += 1
            self.close()

    @staticmethod
    def _send(connection: socket.socket, data: bytes) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(data)

    def _say_last_words(self, outcome: Outcome) -> None:
        assert self._socket is not None
        self._socket.sendall(self._maker.last_words())
        outcome.frames += 1
        self.close()

    @staticmethod
    def _take_answers(connection: socket.socket, wanted: int) -> list[int]:
        """The types of so many answers."""
        received = bytearray()
        types: list[int] = []
        while len(types) < wanted:
            chunk = connection.recv(1 << 20)
            if not chunk:
                raise EOFError
            received += chunk
            position = 0
            while len(received) - position >= LENGTH_BYTES:
                end = position + LENGTH_BYTES + read_length(received, position)
                if end > len(received):
                    break
                types.append(received[position + LENGTH_BYTES])
                position = end
            del received[:position]
        assert set(types) <= {TYPE_SUCCESS, TYPE_ERROR}, "a frame of an unknown type"
        assert len(types) == wanted, "more answers than requests"
        return types

    def close(self) -> None:
        """End the connection without a word."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def resident_bytes(process: psutil.Process) -> int:
    """Resident memory of a process and its children."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += each.memory_info().rss
    return total


def _watch(witness: Callable[[], None], stop: threading.Event, outcome: Outcome) -> None:
    while not stop.wait(WITNESS_PAUSE_SECONDS):
        started = time.monotonic()
        try:
            witness()
        except (FlussError, OSError, AssertionError) as error:
            outcome.witness_errors.append(repr(error))
            return
        outcome.witness_calls += 1
        outcome.slowest_witness_seconds = max(outcome.slowest_witness_seconds, time.monotonic() - started)


def run_campaign(
    attackers: Sequence[Attacker], witness: Callable[[], None], process: psutil.Process, frame_count: int
) -> Outcome:
    """Let the attackers send about `frame_count` frames in turn while the witness is served."""
    outcome = Outcome()
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(witness, stop, outcome), name="witness")
    watcher.start()
    try:
        number = 0
        while outcome.frames < frame_count:
            attackers[number % len(attackers)].burst(outcome)
            number += 1
            warm = outcome.frames > frame_count * WARM_UP_SHARE
            if warm and (not outcome.resident_bytes or number % 50 == 0):
                outcome.resident_bytes.append(resident_bytes(process))
    finally:
        for attacker in attackers:
            attacker.close()
        stop.set()
        watcher.join()
    outcome.resident_bytes.append(resident_bytes(process))
    return outcome
