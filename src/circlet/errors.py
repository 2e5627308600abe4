"""The errors circlet raises for a caller's mistake.

Every message names what was found and what was wanted. Each class also derives from the built-in that a
Python programmer would catch. The command line prints them as one line and exits with 2.
"""


class CircletError(Exception):
    """Base of every error that circlet raises on purpose."""


class ParameterError(CircletError, ValueError):
    """An argument has a value that makes no sense."""


class ShapeError(CircletError, ValueError):
    """A tensor has the wrong shape, or two tensors do not fit together."""


class DTypeError(CircletError, TypeError):
    """A tensor, or what should be one, has the wrong type."""


class DataError(CircletError, ValueError):
    """Input data is malformed; the message names the file and, where there is one, the line."""


class FetchError(CircletError, OSError):
    """A download failed, or is not what it should be."""


class OutputError(CircletError, OSError):
    """A result cannot be written where it was asked for."""


class MissingExtraError(CircletError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'circlet[{extra}]'")
