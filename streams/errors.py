"""The error tree. Three families say who must act.

DocdeltaError
├── PoisonRecord      the sender: the record can never work as it is → dead letter, the stream goes on
├── Unavailable       nobody: something is away or overloaded → hold the offset, wait, try again
├── InvariantBroken   us: what must hold does not → stop the worker, touch nothing more
└── UsageError        the operator: a setting, a file, a command → one line, exit code
    ├── NotReachable      exit code 3: broker, index or other service can't be reached
    ├── NotAuthorised     exit code 4: key, password or permission
    └── NotPrepared       exit code 5: a topic, batch, model or collection is missing or differs
"""

from __future__ import annotations


class DocdeltaError(Exception):
    """Base of all. The message is a lower-case fragment; facts are fields."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.message} ({facts})" if facts else self.message


class PoisonRecord(DocdeltaError):
    """The sender must act: malformed, oversize, unreadable, refused by the policy. Trying again gives the same."""


class Unavailable(DocdeltaError):
    """Nobody must act yet: wait and try again. `retry_after` is in seconds where the other side named it."""

    def __init__(self, message: str, retry_after: float | None = None, **facts: object) -> None:
        super().__init__(message, **facts)
        self.retry_after = retry_after


class InvariantBroken(DocdeltaError):
    """We must act: collection of another policy, manifest unreadable, wrong writer. The worker stops and says so."""


class Stopping(DocdeltaError):
    """The worker is shutting down while an operation waits. The event is not acknowledged and comes again."""


class UsageError(DocdeltaError):
    """The operator must act. `exit_code` is what the command ends with."""

    exit_code = 2


class NotReachable(UsageError):
    """A service does not answer."""

    exit_code = 3


class NotAuthorised(UsageError):
    """A key, password or permission was refused."""

    exit_code = 4


class NotPrepared(UsageError):
    """Something that must exist first is missing or differs from what is needed."""

    exit_code = 5
