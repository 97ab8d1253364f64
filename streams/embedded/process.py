"""A child process with a data folder: holds the folder's lock, logs into it, dies with its parent, is ended by its own pid only.

The lock file's descriptor is inherited by the child, so the folder stays locked exactly as long as the child lives, whatever
becomes of the parent. On Linux the kernel signals the child when its parent dies; elsewhere an orphan keeps the lock and the next
start says so.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from streams.errors import NotPrepared, NotReachable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_TAIL_LINES = 12


class FolderProcess:
    """One process on one data folder. `name` is what messages call it. Files: ``lock``, ``pid``, ``<name>.log`` (appended).

    `orphaned_by`: the signal that ends it when its parent dies (Linux): SIGKILL where it has nothing to save and might linger.
    """

    def __init__(self, name: str, data_dir: Path, orphaned_by: signal.Signals = signal.SIGTERM) -> None:
        self.name = name
        self._orphaned_by = orphaned_by
        self.data_dir = data_dir
        self.log_file = data_dir / f"{name}.log"
        self._pid_file = data_dir / "pid"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the command. NotPrepared when the folder is another process's, or the command can't be run."""
        if self.pid is not None:
            raise NotPrepared(f"{self.name} runs already", pid=self.pid, folder=self.data_dir)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._take(lock)
            started = _StarterThread(list(command), dict(environment or os.environ), self.log_file, lock, self._orphaned_by)
            self._child = started.result()
        except OSError as error:
            raise NotPrepared(f"{self.name} can't be started: {error}", command=command[0]) from error
        finally:
            os.close(lock)
        self._pid_file.write_text(f"{self._child.pid}\n")

    def check_alive(self) -> None:
        """Raise NotReachable with the end of the log when the process has ended by itself."""
        if self._child is not None and (status := self._child.poll()) is not None:
            raise NotReachable(f"{self.name} ended with status {status}; its log says:\n{self.log_tail()}", log=self.log_file)

    def ask_to_stop(self) -> None:
        """Ask the process to end (SIGTERM) without waiting for it."""
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()

    def stop(self, patience: float = 20.0) -> None:
        """Ask the process to end, wait up to `patience` seconds, then kill it. Does nothing when it does not run."""
        self._end(signal.SIGTERM, patience)

    def kill(self) -> None:
        """End the process at once, as a power cut would (SIGKILL), and wait until it is gone."""
        self._end(signal.SIGKILL, 20.0)

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the log, or a note that there is none."""
        if not self.log_file.is_file():
            return "(no log)"
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:]) or "(empty log)"

    def _take(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._pid_file.read_text().strip() if self._pid_file.is_file() else "unknown"
            raise NotPrepared(
                f"another {self.name} works in {self.data_dir}: stop the docdelta that it belongs to, "
                f"or where that is gone, kill {holder}; or choose another folder",
                pid=holder,
            ) from None

    def _end(self, by: signal.Signals, patience: float) -> None:
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.send_signal(by)
            try:
                child.wait(patience)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._child = None
        self._pid_file.unlink(missing_ok=True)


class _StarterThread(threading.Thread):
    """Starts the child and lives as long as it: the kernel's parent-death signal is tied to the thread that forked."""

    def __init__(
        self, command: list[str], environment: dict[str, str], log_file: Path, lock: int, orphaned_by: signal.Signals
    ) -> None:
        super().__init__(name=f"starter of {Path(command[0]).name}", daemon=True)
        self._command, self._environment, self._log_file, self._lock = command, environment, log_file, lock
        self._orphaned_by = orphaned_by
        self._settled = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None

    def result(self) -> subprocess.Popen[bytes]:
        self.start()
        self._settled.wait()
        if self._child is None:
            raise self._error or OSError("not started")
        return self._child

    def run(self) -> None:
        try:
            with self._log_file.open("ab") as log:
                self._child = subprocess.Popen(
                    self._command,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(self._lock,),
                    start_new_session=True,  # Ctrl-C is for the parent, which stops the child when its own work is done
                    preexec_fn=_die_with(os.getpid(), self._orphaned_by) if _LIBC is not None else None,
                )
        except OSError as error:
            self._error = error
        finally:
            self._settled.set()
        while self._child is not None and self._child.poll() is None:
            time.sleep(0.2)


def _die_with(parent: int, by: signal.Signals) -> Callable[[], None]:
    """Return what the child runs before the command: ask for a signal at the parent's death, unless it is dead already."""

    def ask() -> None:
        assert _LIBC is not None
        _LIBC.prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask
