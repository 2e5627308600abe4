"""Approximate top-k through faiss (extra `faiss`), for those who have a use for it.

Logits are an inner product with the packed codes, and a bias is one more dimension of them, so any of faiss's
indexes for inner products takes them. An index holds the table of all codes, labels × width numbers, which
`circlet.codebooks.decoding` does without. Codes are spread evenly by design: there are no clusters for an index
to find, so the approximate kinds miss much more than they do on learned embeddings. `recall` tells how much.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from circlet.codebooks.base import Codebook, SpectralCodebook, _BlockCodebook
from circlet.codebooks.decoding import _ordered, affine
from circlet.errors import MissingExtraError, ParameterError, ShapeError
from circlet.network.losses import Loss

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KINDS", "FaissIndex", "recall"]

KINDS = ("flat", "hnsw", "ivf")
#: Codes that faiss's k-means learns a list from, each.
PER_LIST = 40


class FaissIndex:
    """A faiss index of the codes of all labels.

    Parameters
    ----------
    scorer : Loss or Codebook
        Whose ranking it is; a loss with scale and bias as they are now.
    kind : {"flat", "hnsw", "ivf"}
        All codes, so exact; a graph of neighbours; lists around centres.
    links : int
        Neighbours of each label in the graph of `hnsw`.
    effort : int, optional
        What is looked at for each query: candidates of `hnsw` (default 128), or lists of `ivf` (default: an
        eighth of them).
    """

    def __init__(
        self, scorer: Loss | Codebook, kind: str = "flat", *, links: int = 32, effort: int | None = None
    ) -> None:
        book = scorer.codebook if isinstance(scorer, Loss) else scorer
        if book is None:
            raise ParameterError("head fc has no codes to search: choose another head")
        if kind not in KINDS:
            raise ParameterError(f"`kind` must be one of {', '.join(KINDS)}, got {kind!r}")
        for name, value in (("links", links), ("effort", effort)):
            if value is not None and (not isinstance(value, (int, np.integer)) or value < 2):
                raise ParameterError(f"`{name}` must be a whole number >= 2, got {value!r}")
        scale, bias = affine(scorer) if isinstance(scorer, Loss) else (1.0, None)
        self.kind, self.n_labels, self.width = kind, book.n_labels, book.width
        # Real codes have norm 1, packed ones √d.
        self.scale = scale * (book.scale if isinstance(book, _BlockCodebook) else 1 / book.dim)
        self.biased = bias is not None
        self._index = self._make(int(links), effort)
        blocks = _vectors(book, None if bias is None else bias.cpu().numpy())
        if kind == "ivf":
            self._index.train(_sample(book, bias, PER_LIST * self._index.nlist))
        for vectors in blocks:
            self._index.add(vectors)

    def _make(self, links: int, effort: int | None) -> Any:
        try:
            faiss: Any = importlib.import_module("faiss")
        except ImportError as error:
            raise MissingExtraError("faiss", extra="faiss", purpose="approximate search") from error
        width = self.width + self.biased
        if self.kind == "flat":
            return faiss.IndexFlatIP(width)
        if self.kind == "hnsw":
            index = faiss.IndexHNSWFlat(width, links, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efSearch = effort or 128
            return index
        n_lists = max(1, min(round(4 * math.sqrt(self.n_labels)), self.n_labels // PER_LIST))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, n_lists, faiss.METRIC_INNER_PRODUCT)
        index.nprobe = min(n_lists, effort or max(1, n_lists // 8))
        return index

    def top_k(self, outputs: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The labels found to have the highest scores, as `circlet.codebooks.decoding.top_k` gives them.

        Parameters
        ----------
        outputs : Tensor of shape (batch, width)
        k : int

        Returns
        -------
        ids : Tensor of shape (batch, min(k, n_labels)), int64
            Best first; −1 where no more were found.
        scores : Tensor of the same shape, float32
            −∞ where the id is −1.
        """
        if outputs.dim() != 2 or outputs.shape[1] != self.width:
            raise ShapeError(f"outputs must have shape (batch, {self.width}), got {tuple(outputs.shape)}")
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise ParameterError(f"`k` must be a whole number >= 1, got {k!r}")
        k = min(int(k), self.n_labels)
        if not len(outputs):
            return torch.zeros(0, k, dtype=torch.int64), torch.zeros(0, k)
        queries = outputs.detach().cpu().float() * self.scale
        if self.biased:
            queries = torch.nn.functional.pad(queries, (0, 1), value=1.0)
        found, ids = self._index.search(queries.contiguous().numpy(), k)
        scores = torch.from_numpy(found).masked_fill(torch.from_numpy(ids) < 0, -math.inf)
        ids, scores = _ordered(scores, torch.from_numpy(ids))
        return ids.to(outputs.device), scores.to(outputs.device)


def recall(found: Tensor, exact: Tensor) -> float:
    """Share of the exact labels, `(batch, k)` ids, that are among those found; −1 is no label.

    1 where there are none to be found.
    """
    if found.shape[0] != exact.shape[0]:
        raise ShapeError(f"found has {found.shape[0]} rows and exact {exact.shape[0]}; wanted as many")
    wanted = exact >= 0
    hits = (found[:, None, :] == exact[:, :, None]).any(dim=2) & wanted
    return float(hits.sum() / wanted.sum()) if wanted.any() else 1.0


def _vectors(book: Codebook, bias: np.ndarray[Any, Any] | None) -> Iterator[np.ndarray[Any, Any]]:
    """Codes of all labels with their bias as one more column, block by block."""
    start = 0
    for codes in _code_blocks(book):
        end = start + len(codes)
        vectors = codes.numpy()
        yield vectors if bias is None else np.column_stack([vectors, bias[start:end]])
        start = end


def _code_blocks(book: Codebook) -> Iterator[Tensor]:
    if isinstance(book, _BlockCodebook):
        yield from book._blocks(torch.device("cpu"))
        return
    assert isinstance(book, SpectralCodebook)
    for ids in torch.split(torch.arange(book.n_labels), book._labels_per_block):
        yield book.codes(ids)


def _sample(book: Codebook, bias: Tensor | None, size: int) -> np.ndarray[Any, Any]:
    """Vectors of labels at equal distances, for k-means to learn from."""
    ids = torch.arange(0, book.n_labels, max(1, book.n_labels // size))
    codes = book.codes(ids).numpy()
    return codes if bias is None else np.column_stack([codes, bias.cpu()[ids].numpy()])
