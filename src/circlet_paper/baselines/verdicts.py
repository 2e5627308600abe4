"""What the numbers say about the published rows, and about networks against trees."""

from __future__ import annotations

from circlet_paper import Claim
from circlet_paper.authors import HEADS
from circlet_paper.baselines.plan import (
    COMPARED,
    FAST,
    NEAR,
    OURS,
    PFASTRE,
    Measured,
    beside_published,
    is_near,
    name_of,
    size_of,
    traced_by,
)
from circlet_paper.baselines.tree_cells import MODELS
from circlet_paper.cells import Result
from circlet_paper.runs import verdict


def claims(result: Result) -> list[Claim]:
    """Judge the published rows, CHRR and circlet against trees, and what PfastreXML gains on rare labels."""
    measured = Measured(result)
    judged = [
        _judge_published(measured),
        *(_judge_network(measured, "CHRR", tree) for tree in MODELS.values()),
        *(_judge_network(measured, OURS, tree) for tree in MODELS.values()),
        _judge_rare(measured),
        _judge_size(measured),
    ]
    return [claim for claim in judged if claim is not None]


def _judge_published(measured: Measured) -> Claim | None:
    near, evidence = [], []
    for place, title, these, sources in beside_published(measured):
        known = sources["the Repository"]
        near += [is_near(these, known, m) for m in known]
        evidence.append(f"{name_of(place)} {title}: {traced_by(these, known)}")
    if not near:
        return None
    return Claim(
        "The Repository's rows of FastXML and PfastreXML follow from their papers and programs",
        verdict(sum(near), len(near)),
        f"{sum(near)} of {len(near)} numbers within {NEAR:g} points, means of seeds; {'; '.join(evidence)}",
    )


def _judge_network(measured: Measured, network: str, tree: str) -> Claim | None:
    """Judge by the bootstrap where outcomes were kept; elsewhere the network must be ahead with every seed."""
    better, evidence = [], []
    tested = measured.gaps(network, tree)
    for place, found in measured.at.items():
        if not {network, tree} <= set(found):
            continue
        if gaps := tested.get(place):
            better += [gap.verdict == "ahead" for gap in gaps.values()]
            words = ", ".join(f"P@{k} {gap}" for k, gap in gaps.items())
            evidence.append(f"{name_of(place)}, by the bootstrap over test documents: {words}")
        else:
            means = {k: found[network].mean(f"P@{k}") - found[tree].mean(f"P@{k}") for k in COMPARED}
            better += [min(found[network].values(f"P@{k}")) > max(found[tree].values(f"P@{k}")) for k in COMPARED]
            words = ", ".join(f"P@{k} {gap:+.1f}" for k, gap in means.items())
            evidence.append(f"{name_of(place)}, by every seed, because outcomes were not kept: {words}")
    if not better:
        return None
    return Claim(
        f"{network} ranks better than {tree}" + (" in the authors' protocol" if network in HEADS else ""),
        verdict(sum(better), len(better)),
        f"ahead in {sum(better)} of {len(better)} comparisons; {'; '.join(evidence)}",
    )


def _judge_rare(measured: Measured) -> Claim | None:
    gaps = {
        place: {k: these[PFASTRE].mean(f"PSP@{k}") - these[FAST].mean(f"PSP@{k}") for k in COMPARED}
        for place, these in measured.at.items()
        if {FAST, PFASTRE} <= set(these)
    }
    if not gaps:
        return None
    better = [gap > 0 for by_depth in gaps.values() for gap in by_depth.values()]
    return Claim(
        "PfastreXML finds rare labels better than FastXML",
        verdict(sum(better), len(better)),
        f"by PSP@k, means of seeds, ahead in {sum(better)} of {len(better)} comparisons; "
        + "; ".join(
            f"{name_of(place)} " + ", ".join(f"PSP@{k} {gap:+.1f}" for k, gap in by_depth.items())
            for place, by_depth in gaps.items()
        ),
    )


def _judge_size(measured: Measured) -> Claim | None:
    sizes = {
        place: [size_of(these[title]) / 1e6 for title in ("CHRR", FAST, PFASTRE)]
        for place, these in measured.at.items()
        if {"CHRR", FAST, PFASTRE} <= set(these)
    }
    if not sizes:
        return None
    smaller = [ours < forest for ours, *forests in sizes.values() for forest in forests]
    return Claim(
        "CHRR is smaller than a forest",
        verdict(sum(smaller), len(smaller)),
        "by the bytes of the arrays, CHRR, FastXML and PfastreXML: "
        + "; ".join(f"{name_of(p)} " + ", ".join(f"{mb:.1f} MB" for mb in these) for p, these in sizes.items()),
    )
