"""Private parts of other packages that circlet uses; `tests/test_compat.py` fails when they change."""

from __future__ import annotations

from typing import Any

# The product of CSR matrices without its checks, which take longer than the product of a single row.
from scipy.sparse._sparsetools import csr_matvecs

__all__ = ["annif_backends", "csr_matvecs", "has_bfloat16_instructions", "waits_for_client"]


def annif_backends(backend: Any) -> dict[str, Any] | None:
    """Return the import function of each of Annif's backends, given `annif.backend`; None if it has no list."""
    found = getattr(backend, "_backend_fns", None)
    return found if isinstance(found, dict) else None


def has_bfloat16_instructions(cpu: Any) -> bool:
    """Whether the CPU multiplies matrices of bfloat16, given the module `torch.cpu`; False if unknown."""
    names = "avx512_bf16", "amx_tile"
    if hasattr(cpu, "get_capabilities"):
        return any(cpu.get_capabilities().get(name, False) for name in names)
    # Older versions of torch have no public name for these questions.
    questions = (getattr(cpu, f"_is_{name}_supported", None) for name in names)
    return any(ask is not None and ask() for ask in questions)


def waits_for_client(connection: Any) -> bool:
    """Whether uvicorn's connection waits for its client, to send more of a request or to receive a response."""
    if connection.flow is not None and connection.flow.write_paused:
        return True
    cycle = connection.cycle
    if cycle is None or cycle.response_complete:  # between requests, unless uvicorn's own timer is running
        return connection.timeout_keep_alive_task is None
    return bool(cycle.more_body)
