"""How good a ranking of labels is: P@k, recall@k, nDCG@k, PSP@k, PSnDCG@k, coverage@k, and F1 at a threshold."""

from circlet.metrics.measures import (
    coverage_at_k,
    evaluate,
    inverse_propensity,
    inverse_propensity_of_counts,
    macro_f1,
    micro_f1,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
)

__all__ = [
    "coverage_at_k",
    "evaluate",
    "inverse_propensity",
    "inverse_propensity_of_counts",
    "macro_f1",
    "micro_f1",
    "ndcg_at_k",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
]
