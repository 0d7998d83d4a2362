"""Plans as commands: the command line reads of them what was asked."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.cli import group
from inferlab.errors import BadInput
from inferlab.lab import Lab
from inferlab.records import Plan
from inferlab.records.profile import LEVELS, ProfileOptions
from inferlab.views import command


class Asked(BaseException):
    """What a command would have measured."""


def asked(text: str) -> tuple[Any, ...]:
    """What the real command line hands to the laboratory for this text."""
    program, name, *rest = shlex.split(text)
    assert program == "inferlab"

    def tell(self: Lab, *what: Any) -> NoReturn:
        raise Asked(*what)

    def tell_comparison(self: Lab, *what: Any, fresh: bool) -> NoReturn:
        raise Asked(*what[:4], fresh)

    def tell_benchmark(self: Lab, plan: Plan, *more: Any, **live: Any) -> NoReturn:
        raise Asked(plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lab, "benchmark", tell_benchmark)
        patch.setattr(Lab, "compare", tell_comparison)
        patch.setattr(Lab, "profile", tell)
        with pytest.raises(Asked) as found:
            group.main([name, "--no-save", "-q", *rest], "inferlab", standalone_mode=False)
    return tuple(found.value.args)


def words(without: str = "") -> st.SearchStrategy[str]:
    """Names as people give them, and as they should not."""
    return st.text(st.characters(codec="utf-8", exclude_characters=f"\0{without}"), min_size=1, max_size=12)


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, min_size=1, max_size=3, unique=True).map(tuple)


COUNTS = st.integers(1, 512)
SECONDS = st.floats(0.001, 1e6)
#: A file of results is no model, and a name in a list ends at a comma.
MODELS = words().filter(lambda name: not name.endswith((".json", ".csv", ".md")))
ENGINES = words(without=",").filter(lambda name: name == name.strip())
OPTIONS = st.dictionaries(words(without="="), words(), max_size=3).map(lambda found: tuple(sorted(found.items())))
CELL: dict[str, st.SearchStrategy[Any]] = {
    "num_cores": st.none() | COUNTS,
    "batch_sizes": COUNTS,
    "sequence_lengths": COUNTS,
}
STREAMS: dict[str, st.SearchStrategy[Any]] = {
    "scenarios": st.sampled_from(["async", "sync", "elastic", "offline"]),
    "num_streams": st.none() | COUNTS,
    "instances": COUNTS,
}
REST: dict[str, st.SearchStrategy[Any]] = {
    "input_shapes": st.none() | words(),
    "input_file": st.none() | words(),
    "engine_options": OPTIONS,
    "thread_pinning": st.sampled_from(["core", "numa", "none"]),
    "cpu_list": st.just(()) | some(st.integers(0, 4095)),
    "seed": st.integers(0, 10**12),
    "verify": st.booleans(),
    "patience_s": SECONDS,
}
STREAM_MODES = st.sampled_from(["auto", "threads", "processes", "native"])


def default_or(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these fields, each left out now and then."""
    return st.fixed_dictionaries({}, optional=values)


def listed(values: dict[str, st.SearchStrategy[Any]]) -> dict[str, st.SearchStrategy[Any]]:
    return {name: some(value) for name, value in values.items()}


def alone(values: dict[str, st.SearchStrategy[Any]]) -> dict[str, st.SearchStrategy[Any]]:
    return {name: one.map(lambda value: (value,)) for name, one in values.items()}


@given(
    MODELS,
    default_or(
        {
            "engines": some(ENGINES),
            **listed(CELL | STREAMS),
            "rates": some(st.floats(0.001, 1e6)),
            **REST,
            "stream_mode": STREAM_MODES,
            "time_s": SECONDS,
            "warmup_s": SECONDS,
            "processes": COUNTS,
            "precision": st.floats(0.0001, 1),
            "cluster": words(),
            "on": some(ENGINES),
            "nodes": COUNTS,
            "wait_s": SECONDS,
            "prices": st.lists(st.tuples(ENGINES, st.floats(0.0001, 1e3)), unique=True, max_size=3).map(tuple),
        }
    ),
)
def test_any_benchmark_is_read_again_as_it_was_planned(model: str, fields: dict[str, Any]) -> None:
    plan = Plan(model, **fields)
    assert asked(command.benchmark(plan)) == (plan,)


ARM = {**alone(CELL | STREAMS), "engines": ENGINES.map(lambda one: (one,)), "stream_mode": STREAM_MODES}


@given(MODELS, default_or(ARM | REST), st.data(), SECONDS, st.floats(0, 1), st.booleans())
def test_any_comparison_is_read_again_as_it_was_planned(
    model: str, fields: dict[str, Any], data: st.DataObject, time_s: float, margin: float, fresh: bool
) -> None:
    a = Plan(model, **fields)
    own = {
        **ARM,
        **{name: REST[name] for name in ("input_shapes", "thread_pinning", "engine_options", "cpu_list")},
    }
    b = replace(a, **data.draw(default_or({**own, "model": MODELS})))
    assert asked(command.comparison(a, b, time_s, margin, fresh)) == (a, b, time_s, margin, fresh)


WANTED: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("performance", "loss", "int8", "roofline", "verify"), st.booleans()),
    **dict.fromkeys(("performance_name", "loss_name", "data_file"), words()),
    "levels": st.none() | st.just(()) | st.just(LEVELS) | some(st.floats(0.001, 0.999)),
    "time_s": SECONDS,
    "budget": st.floats(0.001, 10),
}


@given(MODELS, default_or({"engines": ENGINES.map(lambda one: (one,)), **alone(CELL), **REST}), default_or(WANTED))
def test_any_profile_is_read_again_as_it_was_planned(
    model: str, fields: dict[str, Any], parts: dict[str, Any]
) -> None:
    plan, wanted = Plan(model, **fields), ProfileOptions(**parts)
    # On the command line --no-loss means no loss at all, not even an approximated one.
    assert asked(command.profile(plan, wanted))[:2] == (plan, replace(wanted, approximate=wanted.loss))


def test_what_is_as_by_default_is_not_written() -> None:
    plan = Plan("demo:resnet50")
    assert command.benchmark(plan) == "inferlab benchmark demo:resnet50"
    assert command.comparison(plan, plan, 60.0, 0.01) == "inferlab compare demo:resnet50"
    assert command.profile(plan, ProfileOptions()) == "inferlab profile demo:resnet50"


def test_a_command_reads_as_one_would_write_it() -> None:
    plan = Plan(
        "my models/bert.onnx",
        engines=("onnxruntime", "openvino"),
        scenarios=("sync",),
        num_cores=(1, None),
        batch_sizes=(1, 8),
        time_s=2.5,
        precision=0.02,
        engine_options=(("spinning", "0"),),
        verify=False,
    )
    assert command.benchmark(plan) == (
        "inferlab benchmark 'my models/bert.onnx' -e onnxruntime,openvino -s sync -ncores 1,max -b 1,8 -t 2.5 "
        "--precision 2% --engine-option spinning=0 --no-verify"
    )
    a = Plan("old.onnx", scenarios=("sync",), num_cores=(1,))
    b = replace(a, model="new.onnx", engines=("openvino",), num_cores=(2,), engine_options=(("x", "1"),))
    assert command.comparison(a, b, 30.0, 0.02) == (
        "inferlab compare old.onnx new.onnx -e onnxruntime,openvino -s sync --a num_cores=1 --b num_cores=2 "
        "--b engine-option=x=1 -t 30 --margin 2%"
    )
    wanted = ProfileOptions(loss=False, levels=(0.6, 0.9), roofline=True)
    assert command.profile(Plan("m.onnx", engines=("deepsparse",), batch_sizes=(8,)), wanted) == (
        "inferlab profile m.onnx --no-loss --levels 0.6,0.9 --roofline -e deepsparse -b 8"
    )


def test_nothing_in_a_plan_runs_in_the_shell() -> None:
    evil = "$(touch x); `y` && 'z' \"w\" | cat > v\n"
    made = command.benchmark(Plan(evil, input_shapes=evil, engine_options=((evil.replace("=", ""), evil),)))
    assert shlex.split(made) == [
        *("inferlab", "benchmark", evil, "-i", evil, "--engine-option", f"{evil}={evil}"),
    ]


ONE = Plan("m.onnx")
REFUSED: dict[str, Callable[[], str]] = {
    "batch_sizes has both its default and values of its own": lambda: command.benchmark(
        replace(ONE, batch_sizes=(None, 8))
    ),
    "'a,b.py:Mine' cannot be in a list of engines": lambda: command.benchmark(
        replace(ONE, engines=("a,b.py:Mine",))
    ),
    "an arm of a comparison has one value of num_cores, not 2": lambda: command.comparison(
        replace(ONE, num_cores=(1, 2)), replace(ONE, num_cores=(1, 2)), 60.0, 0.01
    ),
    "both arms have one seed, but here are two": lambda: command.comparison(ONE, replace(ONE, seed=1), 60.0, 0.01),
    "a profile has no instances": lambda: command.profile(replace(ONE, instances=(2,)), ProfileOptions()),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_no_command_says_is_refused_with_the_reason(reason: str) -> None:
    with pytest.raises(BadInput, match=f"^This cannot be written as one command: {reason}.$"):
        REFUSED[reason]()
