from __future__ import annotations

from circlet.folder import layout
from circlet.folder.layout import CHECKPOINT, checkpoint_of, is_checkpoint


def test_each_network_has_a_checkpoint():
    names = [checkpoint_of(member) for member in (0, 1, 11)]
    assert names == [CHECKPOINT, "checkpoint-2.safetensors", "checkpoint-12.safetensors"]
    assert all(map(is_checkpoint, names))


def test_nothing_else_is_one():
    others = {*layout.FILES, layout.CONFIG, layout.RUN, layout.DECIDED, layout.LOCK}
    for name in (*others, "checkpoint.json", ".checkpoint-2.safetensors", "checkpoint-x.safetensors"):
        assert not is_checkpoint(name)
