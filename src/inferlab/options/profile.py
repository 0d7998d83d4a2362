"""The options of a profile, beside those of its plan."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from inferlab.options.kinds import File, Flag, Kind, Levels, Number
from inferlab.options.option import Option, declared
from inferlab.options.plan import PLAN, PlanKeywords, StrPath
from inferlab.records.profile import ProfileOptions


class ProfileKeywords(PlanKeywords, total=False):
    """The keywords of a profile; those of its plan among them."""

    performance: Annotated[
        bool,
        Option(
            ("--performance/--no-performance",), Flag(), "Profiles", "Measure the layers' times.  [default: on]"
        ),
    ]
    loss: Annotated[
        bool,
        Option(
            ("--loss/--no-loss",),
            Flag(),
            "Profiles",
            "Measure what pruning each layer costs; without it there is no estimate.  [default: on]",
        ),
    ]
    performance_name: Annotated[
        str, Option(("--performance-name",), Kind(), "Profiles", "Name of the performance profile.")
    ]
    loss_name: Annotated[str, Option(("--loss-name",), Kind(), "Profiles", "Name of the loss profile.")]
    levels: Annotated[
        Sequence[float] | str | None,
        Option(
            ("--levels",),
            Levels(),
            "Profiles",
            "Sparsity levels to measure times at: 0.6,0.9, all or none.",
            unset="all where the engine imposes them",
            many="commas",
        ),
    ]
    int8: Annotated[
        bool, Option(("--int8",), Flag(), "Profiles", "Also measure a copy that is really quantised to INT8.")
    ]
    roofline: Annotated[
        bool,
        Option(
            ("--roofline",), Flag(), "Profiles", "Measure this machine's ceilings, and what limits each layer."
        ),
    ]
    data: Annotated[
        StrPath | None,
        Option(
            ("--data",),
            File(),
            "Model and inputs",
            "Your inputs by name, with 'labels' if there are any, for the loss profile and --int8; or "
            "demo:digits.",
            field="data_file",
            metavar="FILE.npz",
        ),
    ]
    budget: Annotated[
        float,
        Option(
            ("--budget",),
            Number(),
            "Profiles",
            "The loss that the estimated pruning may cost; docs/profiles.md says what a loss is.",
        ),
    ]
    estimate: Annotated[
        bool,
        Option(
            ("--estimate/--no-estimate",),
            Flag(),
            "Profiles",
            "Make copies in INT8 and with fewer channels, and time them for the estimate.  [default: on]",
        ),
    ]
    verify_estimate: Annotated[
        bool,
        Option(
            ("--verify-estimate",),
            Flag(),
            "Profiles",
            "Make the estimated model, measure it, and show both side by side.",
            field="verify",
        ),
    ]


_OWN = declared(ProfileKeywords, ProfileOptions(), PLAN, ("profile",))
#: By keyword, those of a plan among them.
PROFILE: dict[str, Option] = {**_OWN, **PLAN}


def make_profile(values: Mapping[str, Any]) -> ProfileOptions:
    """What a profile with these values by keyword is to have."""
    own = {option.field: values[name] for name, option in _OWN.items()}
    return ProfileOptions(**own, time_s=values["time"], approximate=values["loss"])


def profile_words(wanted: ProfileOptions) -> list[str]:
    """The options of a profile alone as words of a command line, without what is as by default."""
    words = [word for option in _OWN.values() for word in option.words(getattr(wanted, option.field))]
    return words + PLAN["time"].words(wanted.time_s)
