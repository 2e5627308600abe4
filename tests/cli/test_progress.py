from __future__ import annotations

from circlet.cli.progress import TrainingBar
from circlet.training import StepsTaken


def steps(n: int) -> StepsTaken:
    return StepsTaken(steps=n, loss=0.5 * n, documents=16 * n)


def planned(epochs, members, **options):
    bar = TrainingBar(**options)
    bar.plan(epochs, members)
    return bar


def test_a_run_from_the_start():
    bar = planned(3, 1)
    task = bar.bar.now
    bar.epoch(0, 12, 0)
    assert (task.total, task.completed, task.description) == (36, 0, "epoch 1/3")
    for _ in range(12):
        bar.step(steps(1))
    assert task.completed == 12
    bar.epoch(1, 12, 0)
    assert (task.total, task.completed, task.description) == (36, 12, "epoch 2/3")


def test_a_run_that_goes_on_inside_an_epoch():
    bar = planned(3, 1, name="fc")
    task = bar.bar.now
    bar.epoch(1, 12, 5)  # 12 steps of the first epoch and 5 of the second were taken before
    assert (task.total, task.completed, task.description) == (36, 17, "fc epoch 2/3")
    bar.step(steps(4))
    assert task.completed == 21
    assert task.fields["numbers"].startswith("loss 0.5 ")
    bar.step(steps(3))
    bar.epoch(2, 12, 0)
    assert (task.total, task.completed) == (36, 24)
    assert bar.documents == 7 * 16  # only these count for the speed


def test_all_members_share_a_bar():
    bar = planned(3, 2)
    task = bar.bar.now
    bar.member(0)
    bar.epoch(2, 12, 0)
    assert (task.total, task.completed, task.description) == (72, 24, "member 1/2, epoch 3/3")
    bar.member(1)
    bar.epoch(1, 12, 5)
    assert (task.total, task.completed, task.description) == (72, 53, "member 2/2, epoch 2/3")


RECORD = {"epoch": 2, "loss": 0.123456, "lr": 0.1, "seconds": 3, "documents_per_second": 4321, "P@1": 0.5}


def test_a_line_per_epoch(capsys):
    planned(10, 1).record(RECORD)
    assert capsys.readouterr() == ("", "epoch   2/10  loss 0.1235  P@1 50.00  4,321 documents/s\n")


def test_quiet_prints_no_lines(capsys):
    planned(10, 1, quiet=True).record(RECORD)
    assert capsys.readouterr() == ("", "")
