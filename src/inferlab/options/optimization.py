"""The options of a profile, which says what an optimisation would gain, and of a version, which was optimised."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from inferlab.options import File, Flag, Kind, Number, Option, Whole, Word, declared, field_values
from inferlab.options.kinds import Levels, LevelsByName
from inferlab.options.plan import PLAN, PlanKeywords, Some, StrPath
from inferlab.records.optimization import RecipeOptions
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


_OF_PROFILE = declared(ProfileKeywords, ProfileOptions(), PLAN, ("profile",))
#: By keyword, those of a plan among them.
PROFILE: dict[str, Option] = {**_OF_PROFILE, **PLAN}


def make_profile(values: Mapping[str, Any]) -> ProfileOptions:
    """What a profile with these values by keyword is to have."""
    own = field_values(_OF_PROFILE, ProfileOptions, values)
    return ProfileOptions(**own, time_s=values["time"], approximate=values["loss"])


def profile_words(profile: ProfileOptions) -> list[str]:
    """The options of a profile alone as words of a command line, without what is as by default."""
    words = [word for option in _OF_PROFILE.values() for word in option.words(getattr(profile, option.field))]
    return words + PLAN["time"].words(profile.time_s)


# One of the keywords is called float.
_Real: TypeAlias = float


class VersionKeywords(PlanKeywords, total=False):
    """The keywords of a version; those of its plan among them."""

    name: Annotated[
        str,
        Option(
            ("--name",),
            Kind(),
            "Output",
            "What the version is called.",
            unset="the name of the file",
            default="",
        ),
    ]
    sparsity: Annotated[
        _Real | None,
        Option(
            ("--sparsity",),
            Number(),
            "Pruning",
            "Share of weights to make zero, the smallest first, such as 0.8.",
        ),
    ]
    scope: Annotated[
        str,
        Option(
            ("--scope",),
            Word("uniform", "global"),
            "Pruning",
            "The sparsity of each layer alike, or of all weights together with one threshold.",
        ),
    ]
    pattern: Annotated[
        str,
        Option(
            ("--pattern",),
            Word(),
            "Pruning",
            "unstructured, block4, N:M such as 2:4, or channel: whole channels go, and tensors shrink.",
        ),
    ]
    layers: Annotated[
        Mapping[str, _Real] | None,
        Option(
            ("--layer",),
            LevelsByName(),
            "Pruning",
            "The sparsity of layers by the name of a weight or node, or a regular expression. May be repeated.",
            many="repeated",
        ),
    ]
    include: Annotated[
        Some[str],
        Option(
            ("--include",),
            Word(),
            "Pruning",
            "Prune only these layers, by name or regular expression. May be repeated.",
            many="repeated",
        ),
    ]
    exclude: Annotated[
        Some[str],
        Option(
            ("--exclude",),
            Word(),
            "Pruning",
            "Leave these layers as they are, neither pruned nor quantised. May be repeated.",
            many="repeated",
        ),
    ]
    minimum: Annotated[_Real, Option(("--min",), Number(), "Pruning", "Least sparsity of a layer.")]
    maximum: Annotated[_Real, Option(("--max",), Number(), "Pruning", "Highest sparsity of a layer.")]
    ends: Annotated[bool, Option(("--ends",), Flag(), "Pruning", "Prune the first and the last layer too.")]
    budget: Annotated[
        _Real | None,
        Option(
            ("--budget",),
            Number(),
            "Pruning",
            "The loss that pruning may cost; profiles of the model then choose each layer's sparsity.",
        ),
    ]
    profile: Annotated[
        StrPath | None,
        Option(
            ("--profile",),
            File(),
            "Pruning",
            "A profile made before (its file or id), to take the times and losses of a budget and the estimate "
            "from.",
        ),
    ]
    as_estimated: Annotated[
        bool,
        Option(
            ("--as-estimated",),
            Flag(),
            "Model and inputs",
            "Make what the profile estimates to be fastest within its loss budget, or within the one given: INT8, "
            "removed channels, both, or zeros.",
            default=False,
        ),
    ]
    int8: Annotated[str | None, Option(("--int8",), Word("dynamic", "static"), "Quantization", "Compute in INT8.")]
    weights_only: Annotated[
        int | None,
        Option(
            ("--weights-only",),
            Whole(),
            "Quantization",
            "Store weights in this many bits, compute in floating point.",
            metavar="8|4",
        ),
    ]
    float: Annotated[
        str | None,
        Option(("--float",), Word("fp16", "bf16"), "Quantization", "Compute in half precision."),
    ]
    keep_sensitive: Annotated[
        int,
        Option(
            ("--keep-sensitive",),
            Whole(),
            "Quantization",
            "Keep the precision of this many of the most sensitive layers; each layer is tried alone.",
        ),
    ]
    per_tensor: Annotated[
        bool,
        Option(("--per-tensor",), Flag(), "Quantization", "One scale per tensor in INT8, not one per channel."),
    ]
    cleanup: Annotated[
        bool,
        Option(
            ("--no-cleanup",),
            Flag(),
            "Model and inputs",
            "Fold constants and remove dead nodes first.",
        ),
    ]
    data: Annotated[
        StrPath | None,
        Option(
            ("--data",),
            File(),
            "Model and inputs",
            "Your inputs by name, with 'labels' if there are any, for ranges, output distance, accuracy; or "
            "demo:digits.",
            metavar="FILE.npz",
        ),
    ]
    recipe: Annotated[
        StrPath | None,
        Option(
            ("--recipe",),
            File(),
            "Model and inputs",
            "Repeat a recipe, or do what you wrote in one.",
            metavar="FILE.yaml",
        ),
    ]
    goal: Annotated[
        str | None,
        Option(
            ("--goal",),
            Kind(),
            "Search",
            'Try recipes until one reaches this: "2x faster", "30% faster", "2x smaller", or several with commas.',
        ),
    ]
    max_loss: Annotated[
        str | _Real | None,
        Option(
            ("--max-loss",),
            Kind(),
            "Search",
            "Loss that the goal may cost: of the accuracy where the data has labels, else of the outputs.",
            unset="1%",
            metavar="SHARE",
        ),
    ]
    search_time: Annotated[
        _Real | None,
        Option(("--search-time",), Number(), "Search", "Seconds that the search may take.", unset="300"),
    ]
    nearest: Annotated[
        bool,
        Option(
            ("--nearest",),
            Flag(),
            "Search",
            "Where the goal is not reached, make what comes nearest to it within the loss.",
            default=False,
        ),
    ]
    measure: Annotated[
        Some[str] | None,
        Option(
            ("--measure",),
            Word(),
            "Where and how to run",
            "Engines to compare it with the original on, or none.",
            unset="the engine of -e",
            metavar="ENGINES",
            many="commas",
            default=(),
        ),
    ]


#: By keyword, those of a plan among them.
VERSION: dict[str, Option] = {**declared(VersionKeywords, RecipeOptions(), PLAN, ("optimize",)), **PLAN}
