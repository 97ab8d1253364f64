"""Exit codes of every command, and how an error becomes one line on stderr."""

from __future__ import annotations

from chunking.policy_error import PolicyError
from streams.errors import DocdeltaError, InvariantBroken, PoisonRecord, Unavailable, UsageError

OK = 0
FAILED = 1
DRIFT = 6
INTERRUPTED = 130

EXIT_CODES: dict[int, str] = {
    OK: "done, or nothing to do",
    FAILED: "something failed or differs; what, stands on stderr",
    2: "wrong use: an option, a setting, a file or a policy",
    3: "broker, index or another service can't be reached",
    4: "a key, password or permission was refused",
    5: "a topic, batch, model or collection is missing or differs; run what the message names first",
    DRIFT: "an audit found that index, log or source differ",
    INTERRUPTED: "stopped by Ctrl-C",
}


class Failed(UsageError):
    """The command ran and something did not work out: a document that can't be read, an event the broker refused."""

    exit_code = FAILED


def exit_code_of(error: BaseException) -> int | None:
    """Return the exit code of an expected error, or None for one that deserves its traceback."""
    if isinstance(error, UsageError):
        return error.exit_code
    if isinstance(error, PolicyError):
        return 2
    if isinstance(error, Unavailable):
        return 3
    if isinstance(error, PoisonRecord | InvariantBroken | DocdeltaError):
        return FAILED
    return None


def epilog() -> str:
    """Return the exit codes as the last paragraph of ``docdelta --help``."""
    lines = [f"{code}  {meaning}" for code, meaning in EXIT_CODES.items()]
    return "\n\n".join(["Exit codes:", *lines])
