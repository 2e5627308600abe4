"""The numbers that the paper and the Extreme Classification Repository published, in percent."""

from __future__ import annotations

__all__ = ["COMPRESSION", "CORRECTED", "PUBLISHED", "PUBLISHED_METRICS", "REPOSITORY", "published"]

PUBLISHED_METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")
PUBLISHED: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "delicious": {
        "FastXML": (69.6, 59.3, 32.3, 35.4),
        "PfastreXML": (67.1, 58.6, 34.6, 35.9),
        "FC": (70.8, 59.2, 34.1, 36.1),
        "CHRR": (71.2, 59.3, 34.3, 35.9),
    },
    "eurlex-4k": {
        "FastXML": (76.4, 52.0, 33.2, 42.0),
        "PfastreXML": (71.4, 50.4, 26.6, 39.0),
        "XML-CNN": (75.3, 49.2, 32.4, 39.5),
        "FC": (77.4, 47.9, 33.6, 37.3),
        "FC + XLNet": (73.3, 48.8, 33.0, 40.0),
        "CHRR": (75.2, 47.8, 28.7, 34.9),
        "CHRR + XLNet": (77.0, 50.0, 29.8, 37.6),
    },
    "wiki10-31k": {
        "FastXML": (83.0, 57.8, 9.8, 10.5),
        "PfastreXML": (83.6, 59.1, 19.0, 18.4),
        "XML-CNN": (81.4, 56.1, 9.4, 10.2),
        "FC": (80.5, 46.4, 10.5, 8.9),
        "FC + XLNet": (84.0, 58.9, 10.9, 11.5),
        "CHRR": (82.2, 58.8, 10.2, 10.9),
        "CHRR + XLNet": (86.8, 65.1, 11.9, 13.0),
    },
    "delicious-200k": {
        "FastXML": (43.1, 36.2, 6.5, 8.3),
        "PfastreXML": (41.7, 35.6, 3.2, 4.4),
        "FC": (35.1, 32.1, 5.3, 7.4),
        "CHRR": (43.2, 37.1, 6.6, 8.5),
    },
}
#: The Repository's numbers of 2020 for two methods that the paper prints under the wrong names.
CORRECTED: dict[str, dict[str, dict[str, float]]] = {
    "eurlex-4k": {
        "FastXML": {"P@1": 71.4, "P@3": 59.9, "P@5": 50.4},
        "PfastreXML": {"P@1": 75.5, "P@3": 62.7, "P@5": 52.5, "PSP@1": 43.9, "PSP@3": 45.7, "PSP@5": 47.0},
    }
}
#: What the Repository's table of 2020 has for the trees of `circlet_paper.baselines`.
REPOSITORY: dict[str, dict[str, dict[str, float]]] = {
    **CORRECTED,
    "delicious": {
        "FastXML": {"P@1": 69.6, "P@3": 64.1, "P@5": 59.3, "PSP@1": 32.3, "PSP@5": 35.4},
        "PfastreXML": {"P@1": 67.1, "P@3": 62.3, "P@5": 58.6, "PSP@1": 34.6, "PSP@5": 35.9},
    },
}
#: The paper's compression in percent: of the model's size, and of the output's dimensions.
COMPRESSION = {"delicious": (59, 19), "eurlex-4k": (61, 99), "wiki10-31k": (62, 99), "delicious-200k": (61, 80)}


def published(dataset: str, name: str) -> dict[str, float]:
    """A method's published numbers by metric; empty if the paper has none."""
    values = PUBLISHED.get(dataset, {}).get(name)
    return dict(zip(PUBLISHED_METRICS, values, strict=True)) if values else {}
