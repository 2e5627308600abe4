from __future__ import annotations

import pytest

from circlet.serve import guard
from circlet.serve.guard import Rates, bucket_of


def test_a_burst_and_then_the_rate():
    own = Rates(10)
    assert [own.wait("a", 5.0) for _ in range(20)] == [0.0] * 20
    assert own.wait("a", 5.0) == pytest.approx(0.1)
    assert own.wait("a", 5.05) == pytest.approx(0.05)
    assert own.wait("a", 5.11) == 0
    assert own.wait("b", 5.11) == 0


def test_slow_rates_let_one_in():
    own = Rates(0.1)
    assert own.wait("a", 0.0) == 0
    assert own.wait("a", 0.0) == pytest.approx(10)


def test_zero_is_no_limit():
    assert {Rates(0).wait("a", 0.0) for _ in range(10_000)} == {0.0}


def test_silent_clients_are_forgotten(monkeypatch):
    monkeypatch.setattr(guard, "CLIENTS", 3)
    own = Rates(1)
    for client in "abcd":
        own.wait(client, 0.0)
    assert list(own._buckets) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("address", "bucket"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("x:y", "x:y"),
        ("", ""),
    ],
)
def test_buckets(address, bucket):
    assert bucket_of(address) == bucket
