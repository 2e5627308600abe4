"""Independently drawn codes: the paper's angles, and real vectors for HRR."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from circlet.codebooks.base import Codebook
from circlet.hashing import uniform

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "HolographicCodebook",
    "IndependentCodebook",
]


class IndependentCodebook(Codebook):
    """Angles drawn independently and uniformly.

    Angle j of label y is a hash of (seed, y, j), so codes can be generated when needed, with the same result on
    CPU and GPU and for any block size.

    Parameters
    ----------
    n_labels : int
        Number of labels.
    dim : int
        Dimension of the codes.
    seed : int
        The codes follow from it.
    cache : bool
        Keep a table of all codes when they are first needed.
    phases : int, optional
        Draw from this many evenly spaced angles instead of the whole circle; each angle then takes only a few
        bits.
    """

    def __init__(
        self, n_labels: int, dim: int, seed: int = 0, *, phases: int | None = None, cache: bool = False
    ) -> None:
        super().__init__(n_labels, dim, seed, cache=cache)
        self.phases = None if phases is None else self._integer("phases", phases, least=2)

    def state(self) -> dict[str, Any]:
        return super().state() | ({} if self.phases is None else {"phases": self.phases})

    def _generate(self, ops: Any, ids: Any) -> Any:
        theta = uniform(self.seed, ids, self.dim)  # in turns at first
        if self.phases is not None:
            theta *= self.phases
            theta = ops.floor(theta)
            theta /= self.phases
        theta *= 2 * math.pi
        theta -= math.pi
        return ops.pack(theta)

    def concept(self) -> Tensor:
        """The angles of the concept vector **p**, `(dim,)`."""
        import torch

        from circlet.algebra import circular

        return circular.unpack(self._generated(torch.tensor([-1])))[0]


class HolographicCodebook(Codebook):
    """Gaussian vectors, projected (Ganesan et al. 2021) or plain (Plate 1995).

    Parameters
    ----------
    n_labels : int
        Number of labels.
    dim : int
        Dimension of the codes.
    seed : int
        The codes follow from it.
    cache : bool
        Keep a table of all codes when they are first needed.
    projected : bool
        Put every Fourier coefficient on the unit circle. If False, codes are scaled to norm 1 for scoring, so that
        a score is a cosine.
    """

    kind = "real"

    def __init__(
        self, n_labels: int, dim: int, seed: int = 0, *, projected: bool = True, cache: bool = False
    ) -> None:
        super().__init__(n_labels, dim, seed, cache=cache)
        self.projected = projected

    def state(self) -> dict[str, Any]:
        return {**super().state(), "projected": self.projected}

    def _generate(self, ops: Any, ids: Any) -> Any:
        # The Box-Muller transform: two uniform numbers make two normal ones.
        half = (self.dim + 1) // 2
        numbers = uniform(self.seed, ids, 2 * half)
        radius = ops.sqrt(-2 * ops.log1p(-numbers[:, :half]))
        normal = ops.concat([radius, radius]) * ops.pack(2 * math.pi * numbers[:, half:])
        vectors = normal[:, : self.dim] / math.sqrt(self.dim)
        return ops.unit_spectrum(vectors) if self.projected else vectors

    def _scored(self, ops: Any, codes: Any) -> Any:
        return codes if self.projected else ops.unit(codes + 0)  # which may overwrite what it is given

    def concept(self) -> Tensor:
        """The concept vector **p**, `(dim,)`."""
        import torch

        code: Tensor = self._generated(torch.tensor([-1]))[0]
        return code
