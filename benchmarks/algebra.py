"""The circular algebra against torchhd's FHRR and against naive angle arithmetic, in one run on one thread.

    python benchmarks/algebra.py --out benchmarks/results

Every side computes the same thing from the same vectors, which is checked before the clock starts. The sides of a
task take turns in bursts, so that other load on the machine affects all of them. The first call of a burst is not
counted, because it pays for memory that the previous side gave back. The result is the median. Absolute times mean
little on a shared machine: read the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torchhd
from torch import Tensor

from circlet import files
from circlet.algebra import circular, holographic
from circlet.codebooks import SpectralCodebook
from circlet.provenance import provenance
from circlet.report import Table

BURST = 3
Task = dict[str, Callable[[], Tensor]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each side of a task")
    arguments = parser.parse_args()
    files.prepare_folder(arguments.out)
    torch.set_num_threads(1)

    tasks = {
        "bind 4,096 × d = 1,024": bind(),
        **{f"superpose 1,024 sets of 50 of {n:,} labels": superpose(n) for n in (4_000, 10_000, 100_000)},
        "top 10 of 100,000 codes for 64 queries": top_k(),
    }
    measured = {name: measure(task, arguments.rounds) for name, task in tasks.items()}
    result = {
        "benchmark": "algebra",
        "unit": "milliseconds, median; the sides of a task take turns in bursts",
        "provenance": {**provenance(packages=("torch-hd",)), "seed": 0, "rounds": arguments.rounds},
        "tasks": measured,
    }
    files.write_json(arguments.out / "algebra.json", result)
    page = table(result)
    files.write_text(arguments.out / "algebra.md", page.markdown())
    print(page.markdown())


def bind() -> Task:
    a, b = circular.random((2, 4096), 1024, generator=0)
    x, y = holographic.random((2, 4096), 1024, generator=0)
    za, zb = phasors(a), phasors(b)
    hx, hy = x.as_subclass(torchhd.HRRTensor), y.as_subclass(torchhd.HRRTensor)
    assert_close(phasors(circular.bind(a, b)), torchhd.bind(za, zb))
    return {
        "circlet": lambda: circular.bind(a, b),
        "torchhd FHRR": lambda: torchhd.bind(za, zb),
        "torchhd HRR": lambda: torchhd.bind(hx, hy),
        "naive: add, wrap": lambda: circular.wrap(a + b),
    }


def superpose(n_labels: int) -> Task:
    codes = circular.random(n_labels, 1024, generator=0)
    ids = torch.randint(n_labels, (1024, 50), generator=torch.Generator().manual_seed(1))
    packed, complex_codes = circular.pack(codes), phasors(codes)
    reduced = packed.bfloat16()
    ours = torch.nn.functional.embedding_bag(ids, packed, mode="sum")
    assert_close(torch.complex(*ours.chunk(2, dim=-1)), torchhd.multiset(complex_codes[ids]))
    return {
        "circlet": lambda: torch.nn.functional.embedding_bag(ids, packed, mode="sum"),
        "circlet, codes in bfloat16": lambda: torch.nn.functional.embedding_bag(ids, reduced, mode="sum"),
        "torchhd FHRR": lambda: torchhd.multiset(complex_codes[ids]),
        "naive: gather, cos, sin, atan2": lambda: circular.superpose(codes[ids]),
    }


def top_k() -> Task:
    codes = circular.random(100_000, 1024, generator=0)
    # Queries with labels to find: superpositions of 10 labels each.
    queries = circular.superpose(codes[: 64 * 10].view(64, 10, -1))
    packed, packed_queries = circular.pack(codes), circular.pack(queries)
    complex_codes, complex_queries = phasors(codes), phasors(queries)

    def ours() -> Tensor:
        return (packed_queries @ packed.mT).topk(10).indices

    # The same task with structured codes: no table of codes, one FFT per query.
    book = SpectralCodebook(100_000, 1024, seed=0)
    labels = torch.arange(64 * 10)
    spectral_queries = circular.pack(circular.unpack(book.superpose(labels, labels[::10])))

    def ours_spectral() -> Tensor:
        return torch.cat([book.scores(part).topk(10).indices for part in torch.split(spectral_queries, 8)])

    def theirs_cosine() -> Tensor:
        scores: Tensor = torchhd.cosine_similarity(complex_queries, complex_codes)
        return scores.topk(10).indices

    def theirs_dot() -> Tensor:
        scores: Tensor = torchhd.dot_similarity(complex_queries, complex_codes)
        return scores.topk(10).indices

    def naive() -> Tensor:
        # (64, 100,000, 1,024) at once would be 26 GB, so one query at a time.
        scores = torch.stack([circular.similarity(query, codes) for query in queries[:1]])
        return scores.topk(10).indices

    wanted = torch.arange(64 * 10).view(64, 10)
    for found in (ours(), ours_spectral(), theirs_cosine(), theirs_dot()):
        assert torch.equal(plain(found).sort(-1).values, wanted)
    return {
        "circlet": ours,
        "circlet, spectral codes": ours_spectral,
        "torchhd FHRR, cosine_similarity": theirs_cosine,
        "torchhd FHRR, dot_similarity": theirs_dot,
        "naive: mean cos(θ − φ), one query of the 64": naive,
    }


def phasors(theta: Tensor) -> Tensor:
    typed: Tensor = torch.polar(torch.ones_like(theta), theta).as_subclass(torchhd.FHRRTensor)
    return typed


def plain(tensor: Tensor) -> Tensor:
    return tensor.as_subclass(Tensor)


def assert_close(a: Tensor, b: Tensor) -> None:
    assert torch.allclose(plain(a), plain(b), atol=1e-4)


def measure(task: Task, rounds: int) -> dict[str, float]:
    """Milliseconds of each side: the median over `rounds` bursts, in turns."""
    times: dict[str, list[float]] = {side: [] for side in task}
    for _ in range(rounds):
        for side, function in task.items():
            function()
            for _ in range(BURST):
                start = time.perf_counter()
                function()
                times[side].append(1e3 * (time.perf_counter() - start))
    return {side: round(statistics.median(values), 2) for side, values in times.items()}


def table(result: dict[str, Any]) -> Table:
    rows = [
        (task, side, f"{milliseconds:.1f}", f"{milliseconds / sides['circlet']:.1f}×")
        for task, sides in result["tasks"].items()
        for side, milliseconds in sides.items()
    ]
    return Table(
        "The circular algebra on one thread",
        ("Task", "Side", "ms", "time ÷ circlet's"),
        rows,
        note=f"`{result['provenance']['command']}` on {result['provenance']['machine']['processor']}; "
        f"versions: {json.dumps(result['provenance']['versions'])}.",
    )


if __name__ == "__main__":
    main()
