"""attempt(): an operation with every error sorted into the three families, so that nothing unknown leaves an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from schemas.codec import UndecodableRecord
from streams.errors import DocdeltaError, PoisonRecord
from streams.patience import Patience

log = structlog.get_logger(__name__)
Result = TypeVar("Result")


def understood(read: Callable[[], Result]) -> Result:
    """Return what `read` makes of a record's bytes. Whatever it raises, an error of another family apart, is PoisonRecord.

    Bytes are the sender's: none may take a worker down, the reader's own faults included.
    """
    try:
        return read()
    except DocdeltaError:
        raise
    except UndecodableRecord as error:
        raise PoisonRecord(str(error)) from error
    except Exception as error:  # the point of this function: nothing unknown leaves an agent
        log.exception("unexpected error", what="reading a record")
        reason = f"unexpected {type(error).__name__} while reading the record: {error}; please report it with this record"
        raise PoisonRecord(reason[:500]) from error


async def attempt(operation: Callable[[], Awaitable[Result]], patience: Patience, times: int, what: str) -> Result:
    """Return the operation's result. Outages are waited out; an error of no known family is tried `times` times.

    Raises PoisonRecord (also for an unknown error that stays), and what stops the worker: InvariantBroken, Stopping, or a
    UsageError of the index (key refused, collection gone), which ends the process with that error's exit code.
    """
    for number in range(1, times + 1):
        try:
            return await patience.hold(operation, what)
        except DocdeltaError:
            raise
        except Exception as error:  # the point of this function: unknown errors become a family
            log.exception("unexpected error", what=what, attempt=number)
            if number == times:
                reason = f"unexpected {type(error).__name__} while {what}: {error}; please report it with this record"
                raise PoisonRecord(reason[:500]) from error
            await patience.pause(patience.delay(number, None), what)
    raise AssertionError("unreachable: the loop returns or raises")
