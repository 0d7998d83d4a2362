"""Records as plain text: the result's lines, and findings in prose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from inferlab.options.plan import COLUMNS
from inferlab.records import Cell, Estimate, Event, Finding, Machine, Model, Outcome, OutputCheck, engine_name
from inferlab.records.generation import Agreement, GenerationCell, GenerationOutcome
from inferlab.records.profile import Gain
from inferlab.units import count, decimal, duration, plural, scaled, share, size
from inferlab.views.fields import (
    CELL,
    GENERATION_CELL,
    PROMPT_TOKENS,
    QUIETER,
    RATE,
    between,
    half_width,
    useful,
    would_settle,
)

SCENARIO_NAMES = {
    "sync": "singlestream",
    "async": "multistream",
    "elastic": "elastic",
    "server": "server",
    "offline": "offline",
}


def what_is_done(gain: Gain) -> str:
    """What a gain consists of: "INT8", "40 % of channels removed"."""
    if gain.shares:
        return f"{share(gain.channels)} of channels removed, of each group its own share"
    return what_is_done_by(gain.int8, gain.channels, gain.zeros)


def what_is_done_by(int8: bool, channels: float, zeros: float = 0.0) -> str:
    """The same by its parts."""
    parts = ["INT8"] if int8 else []
    parts += [f"{share(channels)} of channels removed"] if channels else []
    parts += [f"{share(zeros)} of the parameters zero"] if zeros else []
    return " with ".join(parts)


def interval(estimate: Estimate, processes: int) -> str:
    """An interval with its half-width and what it rests on; or what to do where it says nothing."""
    ends = estimate.ends
    if ends is None or not useful(ends):
        return f"{between(ends, processes=processes)}. {QUIETER}"
    return f"{between(ends)} (±{half_width(ends)}) from {plural(processes, 'process', 'processes')}"


_ERRORS = {"max": "largest error", "rms": "RMS error", "share": "share that differs"}


def error_label(metric: str) -> str:
    """What an error is, by its metric; a newer version may know more of them."""
    return _ERRORS.get(metric, f"error, {metric}")


def output_check(check: OutputCheck) -> str:
    """The check of the outputs in one sentence."""
    if check.status == "unchecked":
        return f"unchecked: {check.detail}"
    return f"match ({output_error(check)})" if check.status == "match" else f"WRONG ({output_error(check)})"


def output_error(check: OutputCheck) -> str:
    """By how much outputs that were compared are off, and which where they are wrong."""
    allowed = "" if check.tolerance is None else f", tolerance {check.tolerance:g}"
    error_text = f"{error_label(check.metric)} {_error(check.error)}{allowed}, against {check.reference}"
    return error_text if check.status == "match" else f"output '{check.detail}': {error_text}"


def _error(value: float | None) -> str:
    """How far outputs are off; JSON has no infinity and keeps null for it."""
    return "inf" if value is None else f"{value:.2g}"


def _shapes(shapes: Mapping[str, Any]) -> str:
    """Shapes as --input_shapes takes them."""
    return ",".join(f"{name}=[{','.join(map(str, shape))}]" for name, shape in shapes.items())


_FINDINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "output-mismatch": lambda d: (
        f"the outputs are WRONG (error {_error(d['error'])} in '{d['output']}'): this speed is meaningless. "
        "--strict makes it a failure."
    ),
    "deviates": lambda d: (
        f"the outputs deviate from the reference ({error_label(d['metric'])} {_error(d['error'])} in "
        f"'{d['output']}'). That is within what rounding to few bits may change; check the accuracy on data "
        "before you use it."
    ),
    "unchecked": lambda d: f"the outputs were not checked: {d['reason']}.",
    "not-pinned": lambda d: "threads could not be bound to cores on this system; expect more noise.",
    "limited-isa": lambda d: (
        "left to itself, the engine dies of this model on this CPU (SIGILL); measured with "
        f"ONEDNN_MAX_CPU_ISA={d['isa']}, which must be set where it is deployed too."
    ),
    "no-sparse-layers": lambda d: (
        "sparse=on changes nothing: no layer of this model has zeros enough for the engine's sparse kernels."
    ),
    "batch-rewritten": lambda d: (
        f"the model fixes another batch size; a copy rewritten for {d['batch_size']} was measured."
    ),
    "outputs-not-bound": lambda d: (
        "an output has another shape than the model declares, which onnxruntime refuses for bound outputs; it was "
        "called by session.run, which takes some microseconds longer per call."
    ),
    "shapes-guessed": lambda d: (
        f"the model leaves its input shapes open; it was measured with {_shapes(d['shapes'])}, which may not be "
        "what you use. Give your own input shapes."
    ),
    "quota-below-cores": lambda d: (
        f"the container may use {d['quota']:g} CPUs but {plural(d['num_cores'], 'core')} were measured: "
        "it will be throttled. Give fewer cores."
    ),
    "streams-share-cores": lambda d: (
        f"{plural(d['num_streams'], 'stream')} take turns on {plural(d['num_cores'], 'core')}; "
        "latencies include the wait."
    ),
    "idle-cores": lambda d: (
        f"{plural(d['num_cores'], 'core')} do not divide by {plural(d['num_streams'], 'stream')}: "
        f"{plural(d['idle'], 'core')} idle."
    ),
    "several-machines": lambda d: (
        f"its processes ran on {d['machines']} machines of the type, because one was lost: the interval contains "
        "part of what they differ by."
    ),
    "sample-limit": lambda d: "it stopped early: a stream keeps 10 million samples at most.",
    "interrupted": lambda d: (
        f"interrupted after {duration(d['seconds'])} of {duration(d['wanted_s'])}; what was measured is kept."
    ),
    "failed-later": lambda d: (
        f"the engine failed in process {d['processes'] + 1}; these numbers are of the "
        f"{'one' if d['processes'] == 1 else d['processes']} before it."
    ),
    "one-process": lambda d: f"only one process was measured, so there is no interval{_ONE_PROCESS[d['why']](d)}.",
    "not-precise": lambda d: (
        f"the interval is wider than ±{share(d['wanted'])} after {duration(d['seconds'])}: the cap was reached. "
        "Give more time."
    ),
    "no-requests": lambda d: (
        f"no request arrived in {d['idle']} of {d['processes']} processes: {d['rate']:g} a second is too "
        "few for this time. Give more time, or measure in one process."
    ),
    "overloaded": lambda d: (
        f"{_overload(d)}: {d['rate']:g} a second is more than this can serve, and latencies grow with the time "
        "measured. Lower the rate."
    ),
    "clock-changed": lambda d: (
        f"fixed work took {_change(d)} in the later half "
        "of the windows than in the earlier: the clock speed changed. Let the machine settle and repeat."
    ),
    "waited-for-cpu": lambda d: (
        f"threads waited {_shares(d)} of the time for a CPU{_windows(d)}: other programs took it. "
        "Stop them and repeat."
    ),
    "waited-for-each-other": lambda d: (
        f"threads waited {_shares(d)} of the time for a CPU: the streams have more threads than cores."
    ),
    "throttled": lambda d: (
        f"the container was throttled for {_shares(d)} of the time{_windows(d)}. "
        "Give fewer cores, or raise its quota."
    ),
    "profiler-heavy": lambda d: (
        f"the engine's profiler makes an inference {share(d['overhead'])} longer: the shares of small layers are "
        "rough. The time of the whole model is not touched by it."
    ),
    "ceilings-unsteady": lambda d: (
        f"the ceilings of this machine are rough{_rough(d)}: so is the share of its limit that a layer reaches. "
        "Stop other programs and repeat."
    ),
    "ceiling-too-low": lambda d: (
        f"{plural(d['layers'], 'layer')} computed faster than the ceiling, up to {share(d['most'])} of it: it was "
        "measured too low, or the engine computes less than is counted (zeros that it skips, Winograd). Their "
        "share of the limit is not shown. Stop other programs and repeat."
    ),
    "odd-levels": lambda d: (
        f"with {', '.join(d['levels'])} of the weights zero the model seemed slower: something disturbed the "
        "measuring there. Repeat it, or give more time."
    ),
    "channels-not-tried": lambda d: f"what removing channels costs was not tried: {d['reason']}",
    "copy-left-out": lambda d: f"the estimate does without {d['copy']}: {d['reason']}",
    "nan-weights": lambda d: (
        f"the weight '{d['weight']}' has values that are not numbers. Export the model again."
    ),
    "nan-outputs": lambda d: (
        f"outputs are not numbers ({', '.join(d['outputs'])}), so no loss is known. Check the model and the data."
    ),
    "no-scale": lambda d: "all outputs are zero on these inputs, so no relative change can be computed.",
    "loss-unknown": lambda d: (
        f"the loss of '{d['layer']}' is unknown at {', '.join(d['levels'])}: outputs were not numbers there."
    ),
    "fewer-items": lambda d: f"only {d['items']} of {plural(d['wanted'], 'item')} could be used.",
    "steal": lambda d: (
        f"the hypervisor took {_shares(d)} of the CPUs' time{_windows(d)}. Repeat at a quieter moment."
    ),
}

_ONE_PROCESS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "asked": lambda d: "",
    "interrupted": lambda d: "",
    "requests": lambda d: ": fewer than 40 requests arrive in this time. Give more time, or ask for 5 processes",
    "loading": lambda d: (
        f": loading takes {duration(d['ready_s'])}, as long as measuring. Give more time, or ask for 5 processes"
    ),
}


def _overload(data: Mapping[str, Any]) -> str:
    if data["share"]:
        return f"{share(data['share'])} of the requests still waited when time was up"
    return f"the requests need {share(data['load'])} of the time that there is"


def _rough(data: Mapping[str, Any]) -> str:
    """Why ceilings are rough: the rounds differ, or others took the CPUs."""
    why = (
        []
        if data["spread"] is None
        else [f"the best of {data['rounds']} rounds is {share(data['spread'])} higher"]
    )
    why += [f"others took {share(data['lost'])} of the CPUs' time"] if data["lost"] else []
    return f" ({'; '.join(why)})" if why else ""


def _shares(data: Mapping[str, Any]) -> str:
    """A share, or the least and the largest of several cells."""
    most = share(data["share"])
    least = share(data.get("least", data["share"]))
    return most if least == most else f"{least} to {most}"


def _change(data: Mapping[str, Any]) -> str:
    up_to = "up to " if "least" in data else ""
    return f"{up_to}{share(abs(data['change']))} {'longer' if data['change'] > 0 else 'less'}"


def _windows(data: Mapping[str, Any]) -> str:
    return f" (visible in {data['touched']} of {plural(data['windows'], 'window')})"


def _tried(data: Mapping[str, Any]) -> str:
    """How far it was tried; older records do not say."""
    return f", up to {share(data['tried'])} of saturation" if "tried" in data else ""


#: Of a search for a capacity.
CAPACITY_FINDINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "some-out-of-reach": lambda d: (
        f"{d['processes']} of {d['of']} processes met the objective at no rate: the service time itself lies at "
        "the limit. The rate is the middle process's, without an interval."
    ),
    "kept-to-saturation": lambda d: (
        f"{d['processes']} of {d['of']} processes met the objective at every rate tried{_tried(d)}. "
        "The answer is 98 % of saturation: beyond, the queue grows for as long as requests come, and a short look "
        "does not show it."
    ),
    "search-cut": lambda d: (
        f"in {d['processes']} of {d['of']} processes time ran out before the search ended; the last rate tried "
        "counts. Give more with -t."
    ),
    "few-processes": lambda d: (
        f"the time allowed {d['processes']} process{'es' if d['processes'] > 1 else ', so there is no interval'}. "
        f"Give -t {d['seconds']:g} for all that are wanted."
    ),
    "one-process-asked": lambda d: "only one process was measured, so there is no interval.",
    "search-interrupted": lambda d: (
        f"interrupted; of the processes, the {d['processes']} that were complete are kept."
    ),
}


GENERATION_FINDINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "tokens-disagree": lambda d: (
        f"the tokens are WRONG: {d['agreeing']} of {d['positions']} agree with the reference on the same weights "
        f"({plural(d['ties'], 'close choice')} not counted), the first {d['prefix']} of {d['prefix_of']} in a "
        "free generation. This speed is meaningless; --strict makes it a failure."
    ),
    "same-graph-reference": lambda d: (
        f"the tokens were compared with those of the same graph ({d['reference']}), not of FP32 torch on the "
        "original weights: what is wrong in the file itself is not seen. To check that, too, measure the Hugging "
        "Face folder that it was made of."
    ),
    "ended-early": lambda d: (
        f"{d['ended']} of {plural(d['sequences'], 'sequence')} ended before {d['new_tokens']} tokens, the "
        f"shortest after {d['emitted']}: numbers are of the tokens that were emitted."
    ),
    "prefix-cached": lambda d: (
        f"a prompt that was seen before took {share(d['share'])} of the time to its first token: the engine "
        "caches prefixes. "
        + (
            "Times of your own prompts that came more than once are not those of computing them: give more "
            "prompts, or turn the cache off."
            if d.get("own_prompts")
            else "Its numbers are of new prompts."
        )
    ),
    "late-dispatch": lambda d: (
        f"{share(d['share'])} of the requests were given to a free engine late, by up to "
        f"{decimal(d['latest_ms'], 3)} ms: something kept the dispatcher from running, and these times are not "
        "the engine's. Stop other programs and repeat."
    ),
    "dequantized": lambda d: (
        f"{d.get('engine', 'torch')} runs the {d['precision']} weights of this model as "
        f"{d.get('weights', 'fp32')}: the same file, but not the same precision as engines that compute with it "
        "as it is."
    ),
    "requantized": lambda d: (
        f"{d['engine']} runs weights that were quantised to {d['weights']} from those of this model "
        f"({d['precision']}): not the same weights, nor the same precision, as engines that run it as it is."
    ),
    "context-computed": lambda d: (
        f"This engine cannot keep the {d['depth']:,} tokens before the prompt: it computes them with every "
        "prompt, so TTFT and prefill count them. TPOT is at the depth that was asked for."
    ),
    "remote-server": lambda d: (
        f"{d['address']} is a server whose process is not ours: its times include the protocol, its threads and "
        "CPUs are as it was started, and its memory and CPU time are not known."
    ),
}


def generation_label(cell: GenerationCell) -> str:
    """How a cell of a generation is told from others."""
    words = {
        field: field.words(value) for field in (*GENERATION_CELL, RATE) if (value := field.get(cell)) is not None
    }
    if cell.audio_s is not None:
        words[PROMPT_TOKENS] = f"{cell.audio_s:.3g} s of sound"
    elif cell.prompts_digest:
        words[PROMPT_TOKENS] = f"prompt up to {cell.prompt_tokens}"
    return ", ".join(words.values())


def _far_off(data: Mapping[str, Any]) -> str:
    if "accuracy" in data:
        return (
            f"the accuracy fell from {share(data['original_accuracy'])} to {share(data['accuracy'])}, by more "
            f"than {share(data['limit'])}: the model no longer works. {_LESS}"
        )
    generated = " These were generated inputs: look at it on your own data." if data["generated"] else ""
    return (
        f"the outputs are far from the original's: the output distance of {data['distance']:.3g} is above "
        f"{data['limit']:g}, so the model no longer works. {_LESS}{generated}"
    )


def _no_faster(data: Mapping[str, Any]) -> str:
    return {
        "same": "as fast as the original",
        "slower": "slower than the original",
    }.get(data["verdict"], "at most a little faster than the original")


_LESS = "Prune less, leave layers out, or train it again."
_GAIN = " deepsparse and mnn gain from zeros; the pattern 'channel' removes them, so that every engine gains."
_VERSION_FINDINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "outputs-far-off": _far_off,
    "generated-inputs": lambda d: (
        f"ranges were found on {plural(d['items'], 'generated input')}, which are unlike real data: expect a "
        "worse model than with your own inputs (--data file.npz)."
    ),
    "other-model": lambda d: f"the recipe was made for another model ({d['model'] or 'unknown'}).",
    "other-data": lambda d: (
        f"the recipe found its ranges on other data ({d['data']}), so the model differs from the one that it "
        "gave then."
    ),
    "target-not-reached": lambda d: (
        f"{share(d['wanted'])} zeros were requested, and the limits allow {share(d['reached'])}"
        + (f" (at most {share(d['maximum'])} a layer)." if d["maximum"] < 1 else ".")
    ),
    "pattern-fell-short": lambda d: (
        f"{share(d['wanted'])} of what was chosen was to be removed, {share(d['reached'])} was: "
        "the others cannot be taken out by this pattern."
    ),
    "zeros-gain-nothing": lambda d: (
        f"{d['engine']} gained nothing from zeros in the profile, so levels were chosen by the parameters that "
        "become zero."
    ),
    "kept-sensitive": lambda d: (
        f"left in their precision, because they lose most: {', '.join(d['layers'])} (of {d['tried']} layers tried "
        "alone"
        + (f"; {d['of'] - d['tried']} could not be tried or time was up)." if d["tried"] < d["of"] else ").")
    ),
    "zeros-no-faster": lambda d: (
        f"{d['engine']} gained nothing from zeros: with {share(d['zeros'] or 0.0)} of the weights zero the model "
        f"is {_no_faster(d)} there." + ("" if engine_name(d["engine"]) in ("deepsparse", "mnn") else _GAIN)
    ),
    "unsettled": lambda d: (
        f"on {d['engine']} it is not settled whether the optimised model is faster ({d['speedup']:.3g}x in "
        f"{plural(d['pairs'], 'pair')} of processes). "
        + ("Give more time." if d.get("settle_s") is None else would_settle(d["settle_s"]))
    ),
    "no-faster": lambda d: f"on {d['engine']} the optimised model is {_no_faster(d)}.",
}


def finding(warning: Finding) -> str:
    """A finding as a sentence; one that another version made, and that has no words here, with its numbers."""
    try:
        return {**_FINDINGS, **CAPACITY_FINDINGS, **_VERSION_FINDINGS, **GENERATION_FINDINGS}[warning.code](
            warning.data
        )
    except (KeyError, TypeError, ValueError):
        data = ", ".join(f"{name} {value}" for name, value in warning.data.items())
        return f"this version has no text for {warning.code}{f': {data}' if data else ''}."


def cell_label(cell: Cell) -> str:
    """A cell in a few words."""
    unsaid = {"instances": cell.instances == 1, "num_streams": cell.scenario == "sync"}
    get = {field: field.get if field.key in COLUMNS else attrgetter(field.key) for field in CELL}
    values = {field: get[field](cell) for field in CELL if not unsaid.get(field.key)}
    return ", ".join(field.words(value) for field, value in values.items() if value is not None)


def model_facts(model: Model) -> list[str]:
    """How large a model is, and how precise."""
    zeros = round(model.zero_fraction or 0.0, 3)
    parameters = [] if model.parameters is None else [f"{scaled(model.parameters)} parameters"]
    return [*parameters, size(model.size_bytes), model.precision, *([f"{share(zeros)} zeros"] if zeros else [])]


def model_line(model: Model) -> str:
    """A model in a line."""
    return f"{model.source} ({', '.join(model_facts(model))})"


def machine_line(machine: Machine) -> str:
    """The machine that measured, in a line."""
    return (
        f"{machine.node}: {machine.cpu}, {machine.architecture}, {plural(machine.physical_cores, 'core')}, "
        f"{plural(machine.logical_cpus, 'logical CPU')}, {machine.system}"
    )


def shapes(shapes_of: Mapping[str, Sequence[Any]]) -> str:
    """Inputs with their shapes, in a line."""
    return ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in shapes_of.items())


_PINNING = {"core": "Thread pinning to cores enabled", "numa": "Thread pinning to socket/numa nodes enabled"}

_EVENTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "download": lambda d: f"Downloading {d['url']}",
    "install": lambda d: f"{d['name']}: {d['step']} {d['detail']}".rstrip(),
    "baseline": lambda d: f"The baseline is {d['entry']}, the newest benchmark of the branch {d['branch']}",
    "short-series": lambda d: (
        f"The baseline's series has {plural(d['entries'], 'entry', 'entries')} of this cell, machine and version; "
        f"its noise is known from {d['needed']} on. Comparing with the numbers of the baseline alone"
    ),
    "bisecting": lambda d: f"Comparison {d['number']}: {d['engine']}",
    "build": lambda d: f"Building demo:{d['model']}",
    "exporting": lambda d: f"Exporting {d['source']} to {d['path']}",
    "packing": lambda d: f"Packing {size(d['size_bytes'])} of model and inputs" if d["size_bytes"] else "",
    "unpacking": lambda d: f"Unpacking {size(d['size_bytes'])}",
    "training": lambda d: f"Training {d['model']}, batch {d['batch_size']}, sequence {d['sequence_length']}",
    "waiting": lambda d: f"Waiting for another measurement on this machine to end ({d['holder'] or 'unknown'})",
    "unlocked": lambda d: (
        f"The lock {d['file']} cannot be used ({d['reason']}): make sure that nothing else is measured meanwhile"
    ),
    # Whoever ends says where it is kept; this is for those who must know sooner.
    "saved": lambda d: "",
    "unsaved": lambda d: f"The result is not saved: {d['reason']}",
    "cell": lambda d: f"Cell {d['number']} of {d['of']}: {cell_label(d['cell'])}",
    "measured": lambda d: f"    {_outcome(d['outcome'])}",
    "reference": lambda d: f"Computing the reference outputs with {d['label']}",
    "pinning": lambda d: _PINNING.get(d["mode"], "Thread pinning disabled, performance may be sub-optimal"),
    "probing": lambda d: f"Trying a few calls on {d['engine']} to choose how the streams run",
    "limited-isa": lambda d: f"{d['engine']} dies of this model on this CPU; trying it with {d['options']}",
    "converting": lambda d: f"Converting the model for {d['engine']}",
    "choosing": lambda d: f"Measuring which of {d['files']} converted files is faster on {d['engine']}",
    "chosen": lambda d: _chosen(d),
    "loading": lambda d: (
        f"Loading the model on {d['engine']}" + (f", process {d['process']}" if d["process"] > 1 else "")
    ),
    "engine": lambda d: _settings(d),
    "input": lambda d: f"{d['made'].capitalize()} input '{d['name']}', type = {d['dtype']}, shape = {d['shape']}",
    "streams-default": lambda d: (
        f"num_streams default value chosen of {d['num_streams']}. This requires tuning and may be sub-optimal"
    ),
    "warming": lambda d: f"Warming up each process until it is steady, {d['seconds']:g} seconds at most",
    "measuring": lambda d: f"Starting '{d['scenario']}' performance measurements for {d['seconds']:g} seconds",
    "same-arms": lambda d: "Both arms are the same: this measures how small a difference can be seen here",
    "comparison": lambda d: f"Comparison {d['number']} of {d['of']}",
    "comparing": lambda d: f"Comparing interleaved, for {d['seconds']:g} seconds at most",
    "pair": lambda d: f"Pair {d['number']}: B takes {d['ratio']:.4f} of A's time so far",
    "checking": lambda d: "Checking the outputs once more",
    "round": lambda d: f"Round {d['number']}: {plural(d['candidates'], 'configuration')}",
    "tried": lambda d: _tried_text(d),
    "finals": lambda d: f"In pairs: A is {d['a']}; B is {d['b']}",
    "saturation": lambda d: (
        f"Saturated at {d['rate']:.1f} requests/s; {d['slo']} should be met up to {d['predicted']:.1f} requests/s"
    ),
    "token-saturation": lambda d: (
        f"At most {d['rate']:.3g} requests/s are served; searching the highest rate that meets {d['slo']}"
        if d["predicted"]
        else f"At most {d['rate']:.3g} requests/s are served; a request alone misses {d['slo']}"
    ),
    "counting": lambda d: "Counting operations and parameters",
    "layers": lambda d: f"Asking {d['engine']} what its layers take, process {d['process']}",
    "pruned-copy": lambda d: f"Measuring a copy with {d['level']:g} of the weights zero",
    "making-copy": lambda d: f"Making a copy: {d['copy']}",
    "measuring-copy": lambda d: (
        (f"Measuring a copy: {d['copy']}" if d["copy"] else "Measuring the model as it is")
        + (f", on {d['engine']}" if "engine" in d else "")
    ),
    "estimated": lambda d: _estimated(d["gain"]),
    "quantizing": lambda d: f"Quantising a copy to {d['precision']}",
    "cleaning-up": lambda d: f"Cleaning up a copy of {d['model']}",
    "removing-channels": lambda d: f"Removing channels from a copy of {d['model']}",
    "ceilings": lambda d: f"Measuring the ceilings of this machine on {plural(d['num_cores'], 'core')}",
    "loss": lambda d: f"Pruning {plural(d['layers'], 'layer')} one by one, on {plural(d['items'], 'item')}",
    "channel-loss": lambda d: (
        f"Removing channels of {plural(d['groups'], 'group')} one by one, on {plural(d['items'], 'item')}"
    ),
    "nothing-to-verify": lambda d: (
        "There is nothing to verify: nothing that was tried gains within the loss budget"
    ),
    "verifying": lambda d: "Making the estimated model, and measuring it",
    "machine-type": lambda d: f"Machine type {d['type']}: {', '.join(d['nodes'])}",
    "node-wait": lambda d: f"Waiting up to {d['seconds']:g} s for nodes of type {', '.join(d['types'])}",
    "node-silent": lambda d: f"The node {d['node']} is left out: {d['cause'].rstrip('.')}",
    "node-lost": lambda d: f"{d['cause']}",
    "node-install": lambda d: f"Installing the engine {d['engine']}",
    "node-niced": lambda d: (
        f"The node {d['node']} runs at a lower priority (niceness {d['niceness']}), as Ray does by default. "
        "Start it with RAY_worker_niceness=0 for steadier numbers"
    ),
    "on-node": lambda d: _on_node(d),
    "optimizing": lambda d: _OPTIMIZING[d["step"]](d),
    "sensitivity": lambda d: f"Quantising {plural(d['layers'], 'layer')} one by one",
    "versus": lambda d: (
        f"Measuring it interleaved with the original on {d['engine']} ({d['number']} of {d['of']})"
    ),
    "trying": lambda d: f"Recipe {d['number']}: {d['label']}",
    "generation-cell": lambda d: f"Cell {d['number']} of {d['of']}: {generation_label(d['cell'])}",
    "generated": lambda d: f"    {_generated(d['outcome'])}",
    "tokenizing": lambda d: f"Making token ids of {plural(d['prompts'], 'prompt')}",
    "generating": lambda d: f"Generating tokens for {d['seconds']:g} seconds",
    "rung": lambda d: f"Process {d['process']}: requests arrive at {d['rate']:.1f}/s",
}


_OPTIMIZING: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "cleanup": lambda d: "Cleaning up the graph",
    "prune": lambda d: f"Pruning {plural(d['layers'], 'layer')}",
    "quantize": lambda d: f"Changing the precision ({d['scheme']})",
    "check": lambda d: "Running it against the original",
}


def event(one: Event) -> str:
    """An event as a line for the log."""
    return _EVENTS[one.code](one.data)


def _on_node(data: Mapping[str, Any]) -> str:
    line = event(data["event"])
    return f"{data['node']}: {line.strip()}" if line else ""


def progress(one: Event) -> str:
    """How far each node of a cluster is, in a line."""
    states = one.data["nodes"].items()
    return ", ".join(f"{node} {stage} {share(part)}" for node, (stage, part) in states)


def _estimated(gain: Gain) -> str:
    ms = decimal(gain.ms_per_batch)
    return f"Estimated: {ms} ms/batch, {gain.speedup:.3g} times as fast ({what_is_done(gain)})"


def _outcome(outcome: Outcome) -> str:
    """What became of a cell, in a line of the log."""
    if outcome.failure:
        return f"{outcome.failure.code}: {outcome.failure.message}"
    from inferlab.measure.stats import summarize  # late: NumPy takes long to import

    summary = summarize(outcome.cell, outcome.runs)
    if summary is None:
        return "nothing was measured"
    return f"{count(summary.items_per_sec.value)} items/s, median {decimal(summary.median_ms.value, 3)} ms"


def _generated(outcome: GenerationOutcome) -> str:
    """What became of a cell of a generation."""
    from inferlab.measure.generation.stats import summarize_generation  # late: only a generation needs it

    if outcome.failure:
        return f"{outcome.failure.code}: {outcome.failure.message}"
    summary = summarize_generation(outcome.runs)
    if summary is None:
        return "nothing was measured"
    decode = "" if summary.tpot_ms is None else f", TPOT {decimal(summary.tpot_ms.value, 3)} ms"
    return f"TTFT {decimal(summary.ttft_ms.value, 3)} ms{decode}"


def _chosen(data: Mapping[str, Any]) -> str:
    times = ", ".join(f"{name} {decimal(ms, 3)} ms" for name, ms in data["ms"].items())
    return f"{data['engine']} runs the {data['chosen']} file: {times}"


def _tried_text(data: Mapping[str, Any]) -> str:
    # Imported late: only a search needs it, and every log is told through this module.
    from inferlab.measure.exploration import label

    result = data["problem"] or f"{data['items_per_sec']:.4g} items/s"
    return f"{label(data['candidate'])}: {result} ({data['left']} left)"


def _settings(data: Mapping[str, Any]) -> str:
    head = f"{data['engine']} {data['version']}:".replace(" :", ":")
    rest = [f"\t{name}: {value}" for name, value in data.items() if name not in ("engine", "version")]
    return "\n".join([head, *rest])


def agreement_text(agreement: Agreement | None) -> str:
    """How the tokens compare with the reference's, in one sentence."""
    if agreement is None or agreement.top1 is None:
        return f"unchecked: {agreement.detail if agreement else 'nothing was measured'}"
    word = "WRONG: " if agreement.status == "mismatch" else ""
    ties = f", {plural(agreement.ties, 'close choice')}" if agreement.ties else ""
    divergence = agreement.kl_divergence
    distance = "" if divergence is None else f", KL divergence {divergence:.2g}"
    return (
        f"{word}{agreement.agreeing} of {agreement.positions} tokens{ties}{distance}; first {agreement.prefix} of "
        f"{agreement.prefix_of} in a free generation; against {agreement.reference}"
    )
