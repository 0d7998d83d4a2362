"""Events in prose: the lines of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inferlab.measure.stats import summarize
from inferlab.records import Event, Outcome
from inferlab.records.generation import GenerationOutcome
from inferlab.records.profile import Gain
from inferlab.units import count, decimal, plural, share, size
from inferlab.views.text import cell_label, generation_label, what_is_done

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
    "tried": lambda d: _tried(d),
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
        f"Measuring a copy: {d['copy']}" + (f", on {d['engine']}" if "engine" in d else "")
    ),
    "estimated": lambda d: _estimated(d["gain"]),
    "quantizing": lambda d: f"Quantising a copy to {d['precision']}",
    "cleaning-up": lambda d: f"Cleaning up a copy of {d['model']}",
    "removing-channels": lambda d: f"Removing channels from a copy of {d['model']}",
    "ceilings": lambda d: f"Measuring the ceilings of this machine on {plural(d['num_cores'], 'core')}",
    "loss": lambda d: f"Pruning {plural(d['layers'], 'layer')} one by one, on {plural(d['items'], 'item')}",
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


def _tried(data: Mapping[str, Any]) -> str:
    # Imported late: only a search needs it, and every log is told through this module.
    from inferlab.measure.candidates import label

    result = data["problem"] or f"{data['items_per_sec']:.4g} items/s"
    return f"{label(data['candidate'])}: {result} ({data['left']} left)"


def _settings(data: Mapping[str, Any]) -> str:
    head = f"{data['engine']} {data['version']}:".replace(" :", ":")
    rest = [f"\t{name}: {value}" for name, value in data.items() if name not in ("engine", "version")]
    return "\n".join([head, *rest])
