"""Bare loops around generation engines' own calls, with nothing of inferlab: what inferlab is compared with.

Run by path: python bare_generation.py '{"engine": …}' prints {"ttft_ms": …, "tpot_ms": …}, medians of repetitions.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: From a prompt and a number of tokens to the moments at which each was there, in nanoseconds.
Generate = Callable[[Any, int], list[int]]


def main() -> None:
    """Load, generate once to warm up, repeat with new prompts, print."""
    settings = json.loads(sys.argv[1])
    os.sched_setaffinity(0, settings["cpus"])
    os.environ.update(ORT_DISABLE_TELEMETRY="1", OPENBLAS_NUM_THREADS="1")
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    import numpy

    engines = {
        "llamacpp": llamacpp,
        "openvino-genai": openvino_genai,
        "openvino-genai perf metrics": openvino_genai_metrics,
        "onnxruntime-genai": onnxruntime_genai,
        "torch": torch_transformers,
    }
    generate = engines[settings["engine"]](settings["model"], len(settings["cpus"]), settings)
    draw = numpy.random.default_rng(1)

    def prompt() -> Any:
        return draw.integers(0, settings["vocabulary"], settings["prompt"], numpy.int64)

    generate(prompt(), settings["new"])
    ttft: list[float] = []
    tpot: list[float] = []
    end = time.monotonic() + settings["time_s"]
    while time.monotonic() < end or not ttft:
        ids = prompt()
        started = time.perf_counter_ns()
        moments = generate(ids, settings["new"])
        assert len(moments) == settings["new"], len(moments)
        # Perf metrics count from their own start.
        ttft.append(moments[0] - (0 if "metrics" in settings["engine"] else started))
        tpot.append((moments[-1] - moments[0]) / (len(moments) - 1))
    print(
        json.dumps({name: sorted(ns)[len(ns) // 2] / 1e6 for name, ns in (("ttft_ms", ttft), ("tpot_ms", tpot))})
    )


class _Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")),
    ]


class _Parameters(ctypes.Structure):
    _fields_ = [("content", ctypes.c_uint8 * 1024)]


def llamacpp(model: str, threads: int, settings: dict[str, Any]) -> Generate:
    """llama_decode on llama_batch_get_one."""
    import numpy

    spec = importlib.util.find_spec("xllamacpp")
    assert spec is not None and spec.origin is not None
    (path,) = Path(spec.origin).parent.glob("xllamacpp.*.so")
    lib = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(lambda level, text, data: None)
    lib.llama_log_set(silent, None)
    for name in ("llama_model_default_params", "llama_context_default_params"):
        getattr(lib, name).restype = _Parameters
    for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_get_memory"):
        getattr(lib, name).restype = pointer
    lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _Parameters]
    lib.llama_init_from_model.argtypes = [pointer, _Parameters]
    lib.llama_set_n_threads.argtypes = [pointer, ctypes.c_int32, ctypes.c_int32]
    lib.llama_get_memory.argtypes = [pointer]
    lib.llama_memory_seq_rm.argtypes = [pointer, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
    lib.llama_batch_get_one.restype, lib.llama_batch_get_one.argtypes = _Batch, [pointer, ctypes.c_int32]
    lib.llama_decode.argtypes = [pointer, _Batch]
    lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    lib.llama_get_logits_ith.argtypes = [pointer, ctypes.c_int32]
    loaded = lib.llama_model_load_from_file(os.fsencode(model), lib.llama_model_default_params())
    parameters = lib.llama_context_default_params()
    # n_ctx is the first: as much room as inferlab makes, for attention looks over all of it.
    room = -(-max(48, settings["prompt"] + settings["new"]) // 256) * 256
    ctypes.memmove(ctypes.addressof(parameters), ctypes.byref(ctypes.c_uint32(room)), 4)
    context = lib.llama_init_from_model(loaded, parameters)
    lib.llama_set_n_threads(context, threads, threads)
    memory = lib.llama_get_memory(context)

    def decode(ids: Any) -> Any:
        assert lib.llama_decode(context, lib.llama_batch_get_one(ids.ctypes.data, len(ids))) == 0
        row = numpy.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (settings["vocabulary"],))
        return numpy.array([row.argmax()], numpy.int32)

    def generate(prompt: Any, new: int) -> list[int]:
        lib.llama_memory_seq_rm(memory, 0, 0, -1)
        ids = prompt.astype(numpy.int32)
        moments = []
        for _ in range(new):
            ids = decode(ids)
            moments.append(time.perf_counter_ns())
        return moments

    generate.keep = silent  # type: ignore[attr-defined]  # the library calls it
    return generate


def _openvino_settings(threads: int, tokens: int) -> tuple[Any, dict[str, Any], Any]:
    import openvino_genai

    scheduling = openvino_genai.SchedulerConfig()
    scheduling.enable_prefix_caching = False
    scheduling.num_kv_blocks = -(-tokens // 32) + 1
    scheduling.max_num_batched_tokens = tokens
    properties = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "u8",
        "ENABLE_CPU_PINNING": True,
    }
    config = openvino_genai.GenerationConfig()
    config.ignore_eos, config.do_sample, config.apply_chat_template = True, False, False
    return scheduling, properties, config


def openvino_genai(model: str, threads: int, settings: dict[str, Any]) -> Generate:
    """The pipeline that batches continuously, stepped by hand."""
    import openvino
    import openvino_genai

    scheduling, properties, config = _openvino_settings(threads, max(48, settings["prompt"] + settings["new"]))
    pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduling, "CPU", properties)
    numbers = iter(range(1_000_000))

    def generate(prompt: Any, new: int) -> list[int]:
        config.max_new_tokens = new
        handle = pipeline.add_request(next(numbers), openvino.Tensor(prompt[None]), config)
        moments: list[int] = []
        while pipeline.has_non_finished_requests():
            pipeline.step()
            while handle.can_read():
                for output in handle.read().values():
                    moments += [time.perf_counter_ns()] * len(output.generated_ids)
        return moments

    return generate


def openvino_genai_metrics(model: str, threads: int, settings: dict[str, Any]) -> Generate:
    """LLMPipeline with its own performance metrics."""
    import openvino
    import openvino_genai

    scheduling, properties, config = _openvino_settings(threads, max(48, settings["prompt"] + settings["new"]))
    pipeline = openvino_genai.LLMPipeline(model, "CPU", scheduler_config=scheduling, **properties)

    def generate(prompt: Any, new: int) -> list[int]:
        config.max_new_tokens = new
        metrics = pipeline.generate(openvino.Tensor(prompt[None]), config).perf_metrics
        first, each = metrics.get_ttft().mean, metrics.get_tpot().mean
        return [int(1e6 * (first + each * number)) for number in range(new)]

    return generate


def onnxruntime_genai(model: str, threads: int, settings: dict[str, Any]) -> Generate:
    """A generator that is rewound between prompts."""
    import numpy
    import onnxruntime_genai as genai

    genai.disable_telemetry_events()
    room = max(48, settings["prompt"] + settings["new"])
    config = genai.Config(model)
    options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    loaded = genai.Model(config)
    parameters = genai.GeneratorParams(loaded)
    parameters.set_search_options(max_length=room, min_length=room, batch_size=1, do_sample=False)
    generator = genai.Generator(loaded, parameters)

    def generate(prompt: Any, new: int) -> list[int]:
        generator.rewind_to(0)
        generator.append_tokens(numpy.ascontiguousarray(prompt[None], numpy.int32))
        moments = []
        for _ in range(new):
            generator.generate_next_token()
            generator.get_next_tokens()
            moments.append(time.perf_counter_ns())
        return moments

    return generate


def torch_transformers(model: str, threads: int, settings: dict[str, Any]) -> Generate:
    """The module called for each token, with transformers' own cache."""
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    module = AutoModelForCausalLM.from_pretrained(model, dtype="auto").eval()

    def generate(prompt: Any, new: int) -> list[int]:
        cache = DynamicCache(config=module.config)
        ids = torch.from_numpy(prompt[None])
        moments = []
        with torch.inference_mode():
            for _ in range(new):
                answer = module(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                ids = answer.logits[:, -1].argmax(-1, keepdim=True)
                moments.append(time.perf_counter_ns())
        return moments

    return generate


if __name__ == "__main__":
    main()
