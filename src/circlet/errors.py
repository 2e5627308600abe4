"""The errors that circlet raises for a caller's mistakes.

Every message names what was found and what was wanted. Each class also derives from the built-in that a
Python programmer would catch. The command line prints them as one line and exits with 2.
"""

#: Most characters of a message; what a file holds or a user types may be megabytes.
LONGEST = 600


class CircletError(Exception):
    """Base of every error that circlet raises on purpose."""

    def __str__(self) -> str:
        return shortened(super().__str__())


def shortened(message: str) -> str:
    """A message without its middle if it is very long: its start says where, and its end what was wanted."""
    if len(message) <= LONGEST:
        return message
    return f"{message[: LONGEST * 2 // 3]} … {message[3 - LONGEST // 3 :]}"


class ParameterError(CircletError, ValueError):
    """An argument has an invalid value."""


class ShapeError(CircletError, ValueError):
    """A tensor has the wrong shape, or two tensors do not fit together."""


class DTypeError(CircletError, TypeError):
    """A tensor has the wrong dtype, or something is not a tensor."""


class DataError(CircletError, ValueError):
    """Input data is malformed; the message names the file and, where there is one, the line."""


class FetchError(CircletError, OSError):
    """A download failed, or is not what was expected."""


class OutputError(CircletError, OSError):
    """A result cannot be written to the requested place."""


class MemoryLimitError(CircletError, MemoryError):
    """Something does not fit into memory."""


class MissingExtraError(CircletError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'circlet[{extra}]'")
