"""The declarations of options: complete, and the same for the command line, for Python and for copied commands."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from inferlab.cli.benchmark import command
from inferlab.errors import BadInput
from inferlab.options import Flag, Kind, Number, Option, Share, Whole, Word, check_keywords
from inferlab.options.kinds import Levels, Pairs, Prices
from inferlab.options.optimization import PROFILE, VERSION, make_profile
from inferlab.options.plan import PLAN, make_plan
from inferlab.records import Plan
from inferlab.records.profile import ProfileOptions

OPTIONS = list(PLAN.values())


def plan(model: str, given: dict[str, Any]) -> Plan:
    """The plan that these keywords of Python describe."""
    return make_plan(model, check_keywords("benchmark", PLAN, given))


def test_every_field_of_a_plan_but_its_model_is_one_option() -> None:
    assert Counter(option.field for option in OPTIONS) == Counter(set(Plan.__slots__) - {"model"})
    assert len({flag for option in OPTIONS for flag in option.flags[:1]}) == len(PLAN)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.keyword)
def test_an_option_has_its_flags_and_its_default_on_the_command_line(option: Option) -> None:
    (declared,) = [param for param in command.params if param.name == option.keyword]
    assert tuple(declared.opts) == option.flags
    with command.make_context("benchmark", ["model.onnx"]) as context:
        assert context.params[option.keyword] == option.default


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.keyword)
def test_the_default_is_a_value_that_python_may_give(option: Option) -> None:
    given = dict(option.default) if isinstance(option.kind, Pairs | Prices) else option.default
    assert option.check(given) == option.default
    assert plan("m", {option.keyword: given}) == Plan("m")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Whole(), [1, 512]),
        (Whole(most=True), [2, None]),
        (Number(), [0.1, 1e-9, 2.0, 1e22]),
        (Share(), [0.01, 0.333, 1 / 3, 1e-7]),
        (Word(), ["a.py:B", "c"]),
        (Prices(), [("c7i", 0.0892), ("zone=a", 1.0)]),
        (Levels(), [0.5, 0.95]),
    ],
    ids=lambda kind: type(kind).__name__,
)
def test_what_is_written_is_read_again(kind: Kind, values: list[Any]) -> None:
    assert kind.collect([each for value in values for each in kind.read(kind.text(value))]) == tuple(values)
    option = Option(("-x",), kind, "Measuring", "", many="commas")
    assert option.read(kind.join(values)) == tuple(values)


@pytest.mark.parametrize(
    ("keyword", "value", "said"),
    [
        ("batch_size", 1.5, "batch_size is a whole number, not 1.5 (float)."),
        ("batch_size", [], "batch_size is an empty list: give at least one value."),
        ("instances", None, "instances is a whole number, not None (NoneType)."),
        ("nodes", 0, "nodes must be at least 1, not 0."),
        ("timeout", 0, "timeout must be more than 0, not 0."),
        ("price", {"c7i": 0}, "price['c7i'] must be more than 0, not 0."),
        ("verify", 1, "verify is True or False, not 1 (int)."),
        ("engine_option", {"x": [1]}, "engine_option['x'] is text or a number, not [1] (list)."),
        ("input_shapes", [[0]], "input_shapes must be at least 1, not 0."),
    ],
)
def test_what_python_may_not_give_is_refused_in_one_sentence(keyword: str, value: Any, said: str) -> None:
    with pytest.raises(BadInput) as problem:
        plan("m", {keyword: value})
    assert str(problem.value) == said


def test_only_a_flag_has_no_value() -> None:
    assert [option.keyword for option in OPTIONS if isinstance(option.kind, Flag)] == ["verify"]


def test_the_defaults_of_a_profile_are_those_of_its_record() -> None:
    assert make_profile(check_keywords("profile", PROFILE, {})) == ProfileOptions()


@pytest.mark.parametrize("known", [PROFILE, VERSION], ids=["profile", "optimize"])
def test_every_default_is_a_value_that_python_may_give(known: dict[str, Option]) -> None:
    name = "profile" if known is PROFILE else "optimize"
    for option in (one for one in known.values() if name in one.commands):
        assert option.check(option.python_default(name)) == option.default_of(name), option.keyword


def test_declaring_options_imports_nothing_heavy() -> None:
    code = (
        "import sys, inferlab.options.optimization, inferlab.options.optimization\n"
        "print(*{'msgspec', 'pydantic', 'numpy', 'click'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "\n"
