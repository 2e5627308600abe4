"""Whether what goes on is the same run."""

from __future__ import annotations

import json
from dataclasses import dataclass

from circlet.identity import Identity


@dataclass(frozen=True)
class Settings:
    dim: int
    layers: tuple[int, ...] = (4, 4)
    rate: float = 0.5


@dataclass(frozen=True)
class Later(Settings):
    warm_up: int | None = None
    noise: float = 0.0


def stored(identity: Identity) -> dict:
    return json.loads(json.dumps(identity.values))


def test_the_same_values_are_the_same_run():
    one, other = Identity.of(Settings(3), rows="ab"), Identity.of(Settings(3), rows="ab")
    assert one.digest == other.digest
    assert one.differences(stored(other)) == []


def test_a_value_that_changed_is_named():
    (found,) = Identity.of(Settings(3, rate=0.25)).differences(stored(Identity.of(Settings(3))))
    assert (found.name, found.before, found.now) == ("rate", 0.5, 0.25)
    assert str(found) == "rate 0.5, and now 0.25"
    (found,) = Identity.of(Settings(3)).differences(stored(Identity.of(Settings(3, (8, 2)))))
    assert str(found) == "layers 8,2, and now 4,4"


def test_settings_of_a_later_version_count_only_if_they_are_used():
    before = Identity.of(Settings(3))
    same, other = Identity.of(Later(3)), Identity.of(Later(3, warm_up=2))
    assert same.differences(stored(before)) == []
    assert same.digest == before.digest
    assert list(map(str, other.differences(stored(before)))) == ["warm-up None, and now 2"]
    assert other.digest != before.digest


def test_a_setting_that_this_version_does_not_know():
    found = Identity.of(Settings(3)).differences(stored(Identity.of(Later(3, noise=0.1))))
    assert list(map(str, found)) == ["warm-up None, and now unset", "noise 0.1, and now unset"]


def test_a_default_that_is_missing_or_has_changed_is_a_difference():
    @dataclass(frozen=True)
    class Other(Settings):
        rate: float = 0.1

    found = Identity.of(Other(3)).differences(stored(Identity.of(Settings(3))))
    assert list(map(str, found)) == ["rate 0.5, and now 0.1"]
    assert [each.name for each in Identity({"split": None}).differences({})] == ["split"]


def test_digests_are_told_apart_in_words():
    words = {"content": "other documents"}
    found = Identity({"content": "1f", "seed": 1}, words=words).differences({"content": "2e", "seed": 0})
    assert list(map(str, found)) == ["other documents", "seed 0, and now 1"]
