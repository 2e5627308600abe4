from __future__ import annotations

import logging

from circlet.training import Reporter, StepsTaken


def test_a_plain_reporter_logs_epochs_and_nothing_else(caplog):
    reporter = Reporter()
    with caplog.at_level(logging.DEBUG, logger="circlet.training.reporter"):
        reporter.member(1)
        reporter.epoch(0, 5, 0)
        reporter.step(StepsTaken(steps=5, loss=1.0, documents=160))
        assert caplog.records == []
        reporter.record({"epoch": 1, "loss": 0.2})
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "'epoch': 1" in caplog.text
