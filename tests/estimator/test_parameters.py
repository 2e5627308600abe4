"""What the estimator says about a setting is what the setting's field says.

`python -m tests.estimator.test_parameters` writes the docstring anew.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

from circlet import CircletClassifier
from circlet.settings import AUTO, DEFAULTS
from circlet.settings.auto import DECIDABLE
from circlet.settings.network import Setting
from circlet.settings.run import all_settings

#: What the estimator has besides settings; its encoder may be a module, too.
OWN = {"preset", "threshold", "top_k", "keep_index", "device", "random_state", "verbose", "encoder"}
WIDTH = 115


def entry(name: str, setting: Setting) -> str:
    """A setting as numpydoc has it, indented as in the class."""
    kind, usual = setting.kind, setting.usual
    choices = dict.fromkeys([usual, *kind.choices])
    if kind.choices:
        shown = "{" + ", ".join(f'"{each}"' for each in choices) + "}"
    else:
        names = (kind.documented or kind.type.__name__).split(" or ")
        if usual == AUTO:
            names.insert(len(names) - ("None" in names), f'"{AUTO}"')
        shown = ", ".join(names[:-1]) + (" or " if names[1:] else "") + names[-1]
        shown += f', default="{usual}"' if isinstance(usual, str) else f", default={usual!r}"
    said = [setting.help + ("" if setting.help.endswith((".", "…")) else "."), setting.more]
    said += ["By default decided from the data."] if name in DECIDABLE else []
    lines = textwrap.wrap(" ".join(filter(None, said)), WIDTH - 8, break_on_hyphens=False, break_long_words=False)
    return f"    {name} : {shown}\n" + "".join(f"        {line}\n" for line in lines)


def rewritten(source: str) -> str:
    """The module with the entries of settings made from their fields."""
    start, end = source.index("    Parameters\n    ----------\n"), source.index("\n    Attributes\n")
    settings = {name: each for name, each in all_settings().items() if name not in OWN}

    def made(found: re.Match[str]) -> str:
        return entry(found[1], settings[found[1]]) if found[1] in settings else found[0]

    section = re.sub(r"^    (\w+) : .*\n(?:        .*\n)+", made, source[start:end], flags=re.MULTILINE)
    return source[:start] + section + source[end:]


def module() -> Path:
    return Path(inspect.getfile(CircletClassifier))


def test_the_docstring_says_what_settings_say():
    source = module().read_text(encoding="utf-8")
    assert source == rewritten(source), "python -m tests.estimator.test_parameters writes it anew"


def test_every_setting_is_a_parameter_with_its_default():
    signature = inspect.signature(CircletClassifier).parameters
    assert set(signature) == {*DEFAULTS, *OWN}
    assert {name: signature[name].default for name in DEFAULTS} == DEFAULTS


if __name__ == "__main__":
    module().write_text(rewritten(module().read_text(encoding="utf-8")), encoding="utf-8")
