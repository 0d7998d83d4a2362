"""Tiny seeded models that generate, in every form that exporters give them."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from inferlab.model import demo_generative

SHAPE = demo_generative.Shape(layers=2, hidden=32, heads=4, feed_forward=64, vocabulary=96, context=128)
WEIGHTS = demo_generative.random_weights(SHAPE)
#: Samples of a frame of the encoder that hears.
FRAME = 320


def save(model: ModelProto, path: Path) -> Path:
    """Write a model's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def decoder_alone(form: str, folder: Path) -> Path:
    """A decoder without an encoder: merged, in two files, in one, or in one that is told the positions."""
    if form == "merged":
        model = demo_generative.decoder(WEIGHTS, SHAPE, cross=False, cache="branch")
        save(model, folder / "decoder_model_merged.onnx")
    elif form == "pair":
        model = demo_generative.decoder(WEIGHTS, SHAPE, cross=False, cache="none")
        save(model, folder / "decoder_model.onnx")
        model = demo_generative.decoder(WEIGHTS, SHAPE, cross=False, cache="input")
        # As exporters do that trace the step of one token.
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
        save(model, folder / "decoder_with_past_model.onnx")
    else:
        told = form == "told"
        model = demo_generative.decoder(WEIGHTS, SHAPE, cross=False, cache="input", told_positions=told)
        return save(model, folder / "model.onnx")
    return folder


def listener(folder: Path) -> Path:
    """An encoder that hears frames of samples, a merged decoder, and a tokenizer that says one letter a token."""
    generator = np.random.default_rng(1)
    filters = generator.standard_normal((SHAPE.hidden, 1, FRAME), dtype=np.float32)
    nodes = [
        helper.make_node("Unsqueeze", ["input_values", "one"], ["wide"]),
        helper.make_node("Conv", ["wide", "filters"], ["heard"], strides=[FRAME]),
        helper.make_node("Transpose", ["heard"], ["last_hidden_state"], perm=[0, 2, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("input_values", TensorProto.FLOAT, ["batch", "samples"])],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "frames", SHAPE.hidden])],
        [numpy_helper.from_array(np.array([1], np.int64), "one"), numpy_helper.from_array(filters, "filters")],
    )
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "encoder_model.onnx")
    model = demo_generative.decoder(WEIGHTS, SHAPE, cross=True, cache="branch")
    save(model, folder / "decoder_model_merged.onnx")
    (folder / "config.json").write_text(json.dumps({"decoder_start_token_id": 2, "eos_token_id": 95}))
    (folder / "tokenizer.bin").write_bytes(b"".join(bytes([1, 32 + token]) for token in range(SHAPE.vocabulary)))
    return folder


def write_wav(path: Path, seconds: float, rate: int = 16000, channels: int = 1, width: int = 2) -> Path:
    """A seeded noise."""
    count = round(seconds * rate) * channels
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        values = np.random.default_rng(0).integers(-3000, 3000, count)
        file.writeframes(values.astype("<i2" if width == 2 else "u1").tobytes())
    return path
