"""How much smaller CHRR is than FC, by the paper's formulas."""

from __future__ import annotations

from collections.abc import Iterable

from circlet.data import catalog
from circlet.report import Cell, Table
from circlet_paper.cells import Result
from circlet_paper.published import COMPRESSION
from circlet_paper.training_cells import title_of


def model_size(features: int, labels: int, *, stored_codes: bool = True) -> float:
    """The paper's compression of the model, in percent: 1 − size of CHRR / size of FC.

    Sizes count the weights without biases. The paper counts d × L for the labels' vectors, which a codebook made
    from a seed does not store.
    """
    d, narrow, wide = 800, 768, 2048
    circular = features * narrow + narrow * narrow + narrow * 2 * d + (d * labels if stored_codes else 0)
    full = features * wide + wide * wide + wide * labels
    return 100 * (1 - circular / full)


def compression_table(result: Result, datasets: Iterable[str]) -> Table:
    """Tabulate the published compression of each dataset and what the paper's formulas give."""
    rows: list[tuple[Cell, ...]] = []
    shapes = {cell["about"]["dataset"]: cell["shapes"] for cell in result["cells"]}
    for dataset in datasets:
        known = catalog.ENTRIES.get(dataset)
        if dataset in shapes:
            features, labels = shapes[dataset]["features"], shapes[dataset]["labels"]
        elif known is not None and known.features and known.labels:
            features, labels = known.features, known.labels
        else:
            continue
        size, output = COMPRESSION.get(dataset, (None, None))
        ours = [model_size(features, labels), model_size(features, labels, stored_codes=False)]
        found = [f"{percent:.1f}" for percent in (*ours, 100 * (1 - 800 / labels))]
        rows.append((title_of(dataset), features, labels, size, *found[:2], output, found[2]))
    return Table(
        "Compression: CHRR (d = 800, h = 768) against FC (h = 2048), %",
        ("", "F", "L", "Size, published", "by its formula", "without d × L", "Output, published", "1 − d / L"),
        rows,
        note="The paper's formulas with real shapes. The published output ratios of EURLex-4K and Delicious-200K "
        "seem to have changed places; Wiki10-31K's 99 follows from 101,938 labels, its number of "
        "features; Delicious-200K's 61 does not follow from its shape. d × L are the labels' vectors, "
        "which a codebook made from a seed does not store.",
    )
