from __future__ import annotations

import logging

import pytest

pytestmark = pytest.mark.usefixtures("one_thread")


def test_log_and_nothing_but_the_log(caplog, capsys, indicator, learner):
    X, Y = indicator(20)
    with caplog.at_level(logging.INFO, logger="circlet"):
        learner(epochs=2).fit(X, Y)
        assert not caplog.records
        learner(epochs=2, verbose=True).fit(X, Y)
    heads = [record.message.partition(":")[0] for record in caplog.records]
    assert heads[-2:] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert "first_layer" in heads[:-2]  # what was decided
    assert capsys.readouterr() == ("", "")


def test_members_are_named(caplog, indicator, learner):
    with caplog.at_level(logging.INFO, logger="circlet"):
        learner(epochs=1, members=2, verbose=True).fit(*indicator(20))
    heads = [record.message.partition(":")[0] for record in caplog.records]
    assert heads[-2:] == ["member 1, epoch 1 of 1", "member 2, epoch 1 of 1"]
    assert "member" not in caplog.records[-1].message.partition(":")[2]
