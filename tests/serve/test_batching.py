from __future__ import annotations

import asyncio
import threading

import pytest

from circlet.serve.batching import LARGEST, Batcher, OverloadedError


@pytest.fixture
def batcher():
    made = Batcher(10)
    yield made
    made.close()


class Gate:
    """A computation that waits until it may go on, and records what it was called with."""

    def __init__(self) -> None:
        self.entered, self.open, self.calls = threading.Event(), threading.Event(), list[list]()

    def __call__(self, documents):
        self.entered.set()
        assert self.open.wait(10)
        self.calls.append(documents)
        return [2 * document for document in documents]

    async def held(self, batcher: Batcher) -> asyncio.Future:
        """Submit a first job, and wait until the thread is busy with it."""
        future = batcher.submit("first", self, [0])
        await asyncio.to_thread(self.entered.wait, 10)
        return future


def test_what_waits_is_computed_together(batcher):
    gate = Gate()

    async def main():
        futures = [await gate.held(batcher)]
        futures += [batcher.submit("same", gate, [i, 10 * i]) for i in range(1, 4)]
        futures.append(batcher.submit("other", gate, [7]))
        assert batcher.waiting == 7
        gate.open.set()
        return await asyncio.gather(*futures)

    assert asyncio.run(main()) == [[0], [2, 20], [4, 40], [6, 60], [14]]
    assert gate.calls == [[0], [1, 10, 2, 20, 3, 30], [7]]
    assert (batcher.waiting, batcher.calls, batcher.documents) == (0, 3, 8)


def test_room_is_bounded_and_comes_back(batcher):
    gate = Gate()

    async def main():
        futures = [await gate.held(batcher), batcher.submit("a", gate, [1] * 10)]
        with pytest.raises(OverloadedError):
            batcher.submit("a", gate, [1])
        gate.open.set()
        await asyncio.gather(*futures)
        assert await batcher.submit("a", gate, [5] * 50) == [10] * 50  # more than the room, but nothing waits
        assert await batcher.submit("a", gate, []) == []

    asyncio.run(main())


def test_large_groups_let_others_have_their_turn():
    batcher, gate = Batcher(10_000), Gate()

    async def main():
        futures = [await gate.held(batcher)]
        futures += [batcher.submit("many", gate, [i] * 60) for i in range(3)]
        futures.append(batcher.submit("one", gate, [9]))
        gate.open.set()
        await asyncio.gather(*futures)

    asyncio.run(main())
    assert [len(call) for call in gate.calls] == [1, 120, 1, 60]
    assert LARGEST == 128
    batcher.close()


def test_canceled_jobs_are_dropped(batcher):
    gate = Gate()

    async def main():
        first = await gate.held(batcher)
        gone, stays = batcher.submit("same", gate, [1]), batcher.submit("same", gate, [2])
        alone = batcher.submit("alone", gate, [3])
        gone.cancel()
        alone.cancel()
        gate.open.set()
        return await asyncio.gather(first, stays)

    assert asyncio.run(main()) == [[0], [4]]
    assert gate.calls == [[0], [2]]


def test_a_fault_is_only_its_own(batcher):
    gate = Gate()

    def fussy(documents):
        if 13 in documents:
            raise ValueError("13")
        return documents

    async def main():
        first = await gate.held(batcher)
        futures = [batcher.submit("same", fussy, [i]) for i in (12, 13, 14)]
        gate.open.set()
        await first
        return await asyncio.gather(*futures, return_exceptions=True)

    good, bad, also_good = asyncio.run(main())
    assert (good, also_good) == ([12], [14])
    assert isinstance(bad, ValueError)


def test_closing_finishes_what_waits():
    batcher, gate = Batcher(10), Gate()

    async def main():
        futures = [await gate.held(batcher), batcher.submit("a", gate, [4])]
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0)
        gate.open.set()
        await closing
        with pytest.raises(OverloadedError):
            batcher.submit("a", gate, [1])
        return await asyncio.gather(*futures)

    assert asyncio.run(main()) == [[0], [8]]
