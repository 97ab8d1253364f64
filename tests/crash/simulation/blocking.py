"""Blocking: commands as they are, blocking code, in a thread that stands still at each of its calls until it is answered.

Only one of the two threads runs at any time, so one seed still gives one run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from streams.errors import NotReachable, Unavailable
from tests.crash.simulation.ports import Caller


class Killed(BaseException):
    """The command dies at this effect."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that a command waits for: what `Caller.perform` takes."""

    kind: str
    what: str
    steps: tuple[Callable[[], Any], ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: `result()` returns what it returned, or raises what it raised."""

    result: Callable[[], Any]


class Blocking:
    """A command's thread. `call` is for the command; `go_on` for whoever answers."""

    def __init__(self, work: Callable[[Blocking], Any]) -> None:
        self._answers: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._asked: SimpleQueue[Asked | Ended] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def call(self, kind: str, what: str, *steps: Callable[[], Any]) -> Any:
        """Return the answer of a call, or raise it."""
        self._asked.put(Asked(kind, what, steps))
        return self._answers.get()()

    def go_on(self, answer: Callable[[], Any]) -> Asked | Ended:
        """Answer what was asked (the first time: begin), and return what comes next."""
        self._answers.put(answer)
        return self._asked.get()

    def kill(self) -> None:
        """End the command where it stands, as after SIGKILL: whatever it tries on its way out is refused too."""
        while isinstance(self.go_on(_raiser(Killed())), Asked):
            pass

    def _run(self, work: Callable[[Blocking], Any]) -> None:
        try:
            self._answers.get()()
            result = work(self)
        except BaseException as error:  # noqa: BLE001  (told to whoever waits for the end)
            self._asked.put(Ended(_raiser(error)))
        else:
            self._asked.put(Ended(lambda: result))


async def blocking(caller: Caller, work: Callable[[Blocking], Any]) -> Any:
    """Return what `work` returns: each of its calls is an operation of `caller`. One that is refused raises NotReachable there."""
    thread = Blocking(work)
    standing = thread.go_on(lambda: None)
    try:
        while isinstance(standing, Asked):
            try:
                answer = await caller.perform(standing.kind, standing.what, *standing.steps)
            except Unavailable as error:
                standing = thread.go_on(_raiser(NotReachable(str(error))))
            else:
                standing = thread.go_on(lambda answer=answer: answer)  # type: ignore[misc]
    finally:
        if isinstance(standing, Asked):
            thread.kill()
    return standing.result()


def _raiser(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer
