"""Features that can't be told apart share their weights.

Among few documents, many features occur in exactly the same ones: a rare word and most of its character n-grams.
Training moves their weights in the same direction, so what differs between them is the noise that they started
with. With the mean of their weights, a network says the same about these documents, and a smaller copy of it
(`circlet.folder.deflated`) stores them only once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from circlet.network import Network
from circlet.network.encoders import Encoder

__all__ = ["share_weights"]


def share_weights(network: Network, rows: Any) -> None:
    """Give features that occur in the same rows the mean of their weights.

    A feature counts as much as its values are large, so that the sum over the features of such a row stays the
    same. Nothing is done about dense or mapped rows, and with custom encoders.
    """
    if not sp.issparse(rows) or not isinstance(network.encoder, Encoder):
        return
    members, group = _groups(rows)
    if not len(members):
        return
    squares = np.bincount(rows.indices, rows.data.astype(np.float64) ** 2, minlength=rows.shape[1])[members]
    values = np.sqrt(squares)
    shares = values / np.bincount(group, values)[group]
    weight: Any = network.encoder.hidden[0].weight
    with torch.no_grad():
        own = weight[torch.from_numpy(members)].cpu().numpy()
        sums = sp.csr_matrix((shares.astype(np.float32), (group, np.arange(len(members)))))
        weight[torch.from_numpy(members)] = torch.from_numpy((sums @ own)[group]).to(weight.device)


def _groups(rows: sp.csr_matrix) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Features that occur in the same rows as another one, ascending, and the number of each one's group."""
    # Each row has a random number. The sums of these, modulo 2⁶⁴, differ between sets of rows.
    numbers = np.random.default_rng(0).integers(1, 1 << 62, rows.shape[0])
    present = sp.csr_matrix((rows.data != 0, rows.indices, rows.indptr), shape=rows.shape)
    sums = present.astype(np.int64).T @ numbers
    _, group, count = np.unique(sums, return_inverse=True, return_counts=True)
    members = np.flatnonzero((sums != 0) & (count[group] > 1))
    return members, np.unique(group[members], return_inverse=True)[1]
