"""The exact packages whose private parts this folder relies on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from streams.errors import InvariantBroken

REACHED_INTO = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}


def require_known_versions() -> None:
    """Return when the installed packages are the ones the overrides were written for. InvariantBroken otherwise."""
    for package, known in REACHED_INTO.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            installed = "missing"
        if installed != known:
            raise InvariantBroken(
                f"streams/faustio overrides private parts of {package} {known}: install exactly that version, "
                "or re-check every override and its tests before raising the pin",
                installed=installed,
            )
