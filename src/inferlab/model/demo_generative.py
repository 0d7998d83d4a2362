"""The built-in models that generate, with seeded random weights.

A Llama as a GGUF file, which every engine of generation reads; and a BART: ONNX graphs of its encoder and its
decoder, and the same weights for PyTorch. The graphs have the inputs and outputs that exporters give them:
`past_key_values.…` comes in, `present.…` leaves.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from inferlab.files import whole_file
from inferlab.model.generative_files import write_gguf

if TYPE_CHECKING:
    from onnx import ModelProto


_LLAMA_CONTEXT = 2048
Weights = dict[str, NDArray[np.float32]]
#: How a decoder takes its cache: always, by a switch that says whether there is one, or not at all.
Cache = Literal["input", "branch", "none"]
# Positions begin behind the two that BART gave to padding.
_OFFSET = 2


def write(name: str, path: Path) -> None:
    """Write the built-in model of this name to a file, or to a folder, that appears whole."""
    if name.startswith("llama"):
        sizes = (6, 288, 6, 6, 768, 16000) if name == "llama" else (2, 64, 4, 2, 128, 256)
        with whole_file(path) as file:
            _write_llama(file, *sizes)
        return
    shape = Shape(3, 256, 4, 1024, 8000, 1024) if name == "bart" else Shape(2, 64, 4, 128, 256, 128)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=path.parent) as scratch:
        _write_bart(Path(scratch), shape)
        try:
            Path(scratch).rename(path)
        except OSError:
            if not path.is_dir():  # unless another process was faster
                raise


def _write_llama(
    file: BinaryIO, layers: int, hidden: int, heads: int, kv_heads: int, feed_forward: int, vocabulary: int
) -> None:
    """Write a Llama; it has no tokenizer, because prompts are token ids."""
    generator = np.random.default_rng(0)

    def weights(rows: int, columns: int) -> NDArray[np.float32]:
        return generator.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(columns))

    size = hidden // heads
    ones = np.ones(hidden, np.float32)
    tensors = {"token_embd.weight": weights(vocabulary, hidden)}
    for layer in range(layers):
        tensors |= {
            f"blk.{layer}.{name}.weight": value
            for name, value in {
                "attn_norm": ones,
                "attn_q": weights(heads * size, hidden),
                "attn_k": weights(kv_heads * size, hidden),
                "attn_v": weights(kv_heads * size, hidden),
                "attn_output": weights(hidden, heads * size),
                "ffn_norm": ones,
                "ffn_gate": weights(feed_forward, hidden),
                "ffn_up": weights(feed_forward, hidden),
                "ffn_down": weights(hidden, feed_forward),
            }.items()
        }
    tensors |= {"output_norm.weight": ones, "output.weight": weights(vocabulary, hidden)}
    metadata: dict[str, str | int | float] = {
        "general.architecture": "llama",
        "general.name": "inferlab demo",
        "general.file_type": 0,
        "llama.block_count": layers,
        "llama.context_length": _LLAMA_CONTEXT,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": feed_forward,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        "llama.rope.dimension_count": size,
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": vocabulary,
        # llama.cpp: there is no tokenizer.
        "tokenizer.ggml.model": "no_vocab",
    }
    write_gguf(file, metadata, tensors)


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model; encoder and decoder have the same."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    context: int

    @property
    def head_size(self) -> int:
        """The numbers of a head."""
        return self.hidden // self.heads


def _write_bart(folder: Path, shape: Shape) -> None:
    """Write the encoder, the decoder with its switch, their configuration and the weights for PyTorch."""
    weights = random_weights(shape)
    (folder / "encoder_model.onnx").write_bytes(encoder(weights, shape).SerializeToString())
    (folder / "decoder_model_merged.onnx").write_bytes(
        decoder(weights, shape, cross=True, cache="branch").SerializeToString()
    )
    (folder / "config.json").write_text(json.dumps(configuration(shape), indent=2), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", weights)


def configuration(shape: Shape) -> dict[str, Any]:
    """What transformers makes the model of."""
    both = {"layers": shape.layers, "attention_heads": shape.heads, "ffn_dim": shape.feed_forward}
    return {
        "architectures": ["BartForConditionalGeneration"],
        "model_type": "bart",
        "is_encoder_decoder": True,
        "d_model": shape.hidden,
        **{f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in both.items()},
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
        "activation_function": "relu",
        "tie_word_embeddings": False,
        "decoder_start_token_id": 2,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


def random_weights(shape: Shape) -> Weights:
    """Weights by the names that transformers gives them."""
    generator = np.random.default_rng(0)
    weights: Weights = {}

    def linear(name: str, rows: int, columns: int) -> None:
        scale = np.float32(np.sqrt(columns))
        weights[f"{name}.weight"] = generator.standard_normal((rows, columns), dtype=np.float32) / scale
        weights[f"{name}.bias"] = generator.standard_normal(rows, dtype=np.float32) * np.float32(0.1)

    def norm(name: str) -> None:
        weights[f"{name}.weight"] = np.ones(shape.hidden, np.float32)
        weights[f"{name}.bias"] = np.zeros(shape.hidden, np.float32)

    table = generator.standard_normal((shape.vocabulary, shape.hidden), dtype=np.float32)
    for part in ("encoder", "decoder"):
        weights[f"model.{part}.embed_tokens.weight"] = table
        weights[f"model.{part}.embed_positions.weight"] = generator.standard_normal(
            (shape.context + _OFFSET, shape.hidden), dtype=np.float32
        )
        norm(f"model.{part}.layernorm_embedding")
        for layer in range(shape.layers):
            home = f"model.{part}.layers.{layer}"
            for attention in ("self_attn", "encoder_attn")[: 1 if part == "encoder" else 2]:
                for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{home}.{attention}.{name}", shape.hidden, shape.hidden)
                norm(f"{home}.{attention}_layer_norm")
            linear(f"{home}.fc1", shape.feed_forward, shape.hidden)
            linear(f"{home}.fc2", shape.hidden, shape.feed_forward)
            norm(f"{home}.final_layer_norm")
    weights["model.shared.weight"] = table
    linear("lm_head", shape.vocabulary, shape.hidden)
    del weights["lm_head.bias"]
    weights["final_logits_bias"] = np.zeros((1, shape.vocabulary), np.float32)
    return weights


def write_safetensors(path: Path, weights: Weights) -> None:
    """Write tensors in the format of safetensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, value in weights.items():
        begin, end = end, end + value.nbytes
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [begin, end]}
    head = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little"))
        file.write(head)
        for value in weights.values():
            file.write(np.ascontiguousarray(value, "<f4").tobytes())


class _Graph:
    """Nodes in their order, and the tensors they name."""

    def __init__(self, weights: Weights, shape: Shape, prefix: str = "") -> None:
        from onnx import TensorProto, helper, numpy_helper

        self._helper, self._types, self._to_tensor = helper, TensorProto, numpy_helper.from_array
        self.weights, self.shape, self._prefix = weights, shape, prefix
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node with one output, and the name of that."""
        output = name or f"{self._prefix}{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, value: Any, name: str = "") -> str:
        """A tensor of the graph."""
        array = np.asarray(value)
        name = name or f"constant_{array.dtype}_{'_'.join(map(str, array.ravel()[:4]))}_{array.ndim}"
        if name not in self.tensors:
            self.tensors[name] = self._to_tensor(array, name)
        return name

    def weight(self, name: str, turned: bool = False) -> str:
        """One of the model's weights; `turned` for a product from the right."""
        value = self.weights[name]
        return self.constant(np.ascontiguousarray(value.T) if turned else value, name)

    def port(self, name: str, kind: str, dims: list[Any], output: bool = False) -> str:
        """An input or output of the graph."""
        value = self._helper.make_tensor_value_info(name, getattr(self._types, kind), dims)
        (self.outputs if output else self.inputs).append(value)
        return name

    def linear(self, name: str, value: str) -> str:
        """A layer of weights, with its bias if it has one."""
        product = self.add("MatMul", value, self.weight(f"{name}.weight", turned=True))
        return self.add("Add", product, self.weight(f"{name}.bias")) if f"{name}.bias" in self.weights else product

    def norm(self, name: str, value: str) -> str:
        """A layer norm."""
        inputs = (value, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))
        return self.add("LayerNormalization", *inputs, axis=-1, epsilon=1e-5)

    def size(self, value: str, axis: int) -> str:
        """One dimension of a tensor, as a scalar."""
        return self.add("Gather", self.add("Shape", value), self.constant(np.int64(axis)), axis=0)

    def span(self, begin: str, end: str) -> str:
        """The whole numbers from one to before the other."""
        return self.add("Range", begin, end, self.constant(np.int64(1)))

    def split(self, value: str) -> str:
        """[batch, position, hidden] as [batch, head, position, size]."""
        target = self.constant(np.array([0, 0, self.shape.heads, self.shape.head_size], np.int64))
        return self.add("Transpose", self.add("Reshape", value, target), perm=[0, 2, 1, 3])

    def attend(self, home: str, value: str, keys: str, values: str, mask: str = "") -> str:
        """Attention to keys and values that are split already."""
        scale = self.constant(np.float32(self.shape.head_size**-0.5))
        queries = self.split(self.add("Mul", self.linear(f"{home}.q_proj", value), scale))
        scores = self.add("MatMul", queries, self.add("Transpose", keys, perm=[0, 1, 3, 2]))
        if mask:
            scores = self.add("Add", scores, mask)
        heads = self.add("MatMul", self.add("Softmax", scores, axis=-1), values)
        merged = self.add("Transpose", heads, perm=[0, 2, 1, 3])
        target = self.constant(np.array([0, 0, self.shape.hidden], np.int64))
        return self.linear(f"{home}.out_proj", self.add("Reshape", merged, target))

    def block(self, home: str, value: str) -> str:
        """The two layers behind attention."""
        inner = self.add("Relu", self.linear(f"{home}.fc1", value))
        return self.norm(f"{home}.final_layer_norm", self.add("Add", value, self.linear(f"{home}.fc2", inner)))

    def embed(self, part: str, ids: str, begin: str, position_ids: str = "") -> str:
        """Tokens with their positions: those told, or from a first one on."""
        tokens = self.add("Gather", self.weight(f"model.{part}.embed_tokens.weight"), ids, axis=0)
        first = self.add("Add", position_ids or begin, self.constant(np.int64(_OFFSET)))
        places = first if position_ids else self.span(first, self.add("Add", first, self.size(ids, 1)))
        positions = self.add("Gather", self.weight(f"model.{part}.embed_positions.weight"), places, axis=0)
        return self.norm(f"model.{part}.layernorm_embedding", self.add("Add", tokens, positions))

    def choose(self, switch: str, name: str, then: str, otherwise: _Graph, result: str) -> str:
        """A tensor by a switch: one that is there, or what another graph makes."""
        helper = self._helper
        copy = helper.make_node("Identity", [then], [f"{name}_then"])
        kind = self._types.FLOAT
        branches = {}
        for branch, nodes, output in (
            ("then_branch", [copy], f"{name}_then"),
            ("else_branch", otherwise.nodes, result),
        ):
            value = helper.make_tensor_value_info(output, kind, ["a", self.shape.heads, "b", self.shape.head_size])
            branches[branch] = helper.make_graph(nodes, f"{name}_{branch}", [], [value])
        self.tensors |= otherwise.tensors
        return self.add("If", switch, name=name, **branches)

    def model(self, name: str) -> ModelProto:
        """The whole graph."""
        graph = self._helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.tensors.values()))
        opsets = [self._helper.make_opsetid("", 17)]
        return self._helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="inferlab")


def encoder(weights: Weights, shape: Shape) -> ModelProto:
    """The graph of the encoder."""
    graph = _Graph(weights, shape)
    ids = graph.port("input_ids", "INT64", ["batch_size", "encoder_sequence_length"])
    value = graph.embed("encoder", ids, graph.constant(np.int64(0)))
    for layer in range(shape.layers):
        home = f"model.encoder.layers.{layer}"
        keys, values = (graph.split(graph.linear(f"{home}.self_attn.{letter}_proj", value)) for letter in "kv")
        seen = graph.attend(f"{home}.self_attn", value, keys, values)
        value = graph.norm(f"{home}.self_attn_layer_norm", graph.add("Add", value, seen))
        value = graph.block(home, value)
    graph.add("Identity", value, name="last_hidden_state")
    dims = ["batch_size", "encoder_sequence_length", shape.hidden]
    graph.port("last_hidden_state", "FLOAT", dims, output=True)
    return graph.model("encoder")


def decoder(
    weights: Weights, shape: Shape, *, cross: bool, cache: Cache, told_positions: bool = False
) -> ModelProto:
    """The graph of the decoder; without cross attention it is a language model of its own.

    Some exporters leave it to the caller to tell which tokens there are and where (`told_positions`).
    """
    graph = _Graph(weights, shape)
    ids = graph.port("input_ids", "INT64", ["batch_size", "sequence_length"])
    hidden = ""
    if cross:
        dims = ["batch_size", "encoder_sequence_length", shape.hidden]
        hidden = graph.port("encoder_hidden_states", "FLOAT", dims)
    switch = graph.port("use_cache_branch", "BOOL", [1]) if cache == "branch" else ""
    own = {}
    for layer in range(shape.layers):
        for part in ("key", "value"):
            own[layer, part] = _past(graph, f"{layer}.decoder.{part}" if cross else f"{layer}.{part}", cache)
    begin = graph.size(own[0, "key"], 2) if cache != "none" else graph.constant(np.int64(0))
    places = graph.port("position_ids", "INT64", ["batch_size", "sequence_length"]) if told_positions else ""
    value = graph.embed("decoder", ids, begin, places)
    mask = _causal_mask(graph, begin, ids)
    if told_positions:
        mask = _told_mask(graph, mask)
    for layer in range(shape.layers):
        home = f"model.decoder.layers.{layer}"
        middle = "decoder." if cross else ""
        whole = []
        for letter, name in (("k", "key"), ("v", "value")):
            new = graph.split(graph.linear(f"{home}.self_attn.{letter}_proj", value))
            output = f"present.{layer}.{middle}{name}"
            if cache == "none":
                whole.append(graph.add("Identity", new, name=output))
            else:
                whole.append(graph.add("Concat", own[layer, name], new, name=output, axis=2))
            _present(graph, output)
        seen = graph.attend(f"{home}.self_attn", value, whole[0], whole[1], mask)
        value = graph.norm(f"{home}.self_attn_layer_norm", graph.add("Add", value, seen))
        if cross:
            others = [_of_encoder(graph, home, layer, part, hidden, switch) for part in ("key", "value")]
            seen = graph.attend(f"{home}.encoder_attn", value, others[0], others[1])
            value = graph.norm(f"{home}.encoder_attn_layer_norm", graph.add("Add", value, seen))
        value = graph.block(home, value)
    graph.add("MatMul", value, graph.weight("lm_head.weight", turned=True), name="logits")
    graph.port("logits", "FLOAT", ["batch_size", "sequence_length", shape.vocabulary], output=True)
    return graph.model("decoder")


def _past(graph: _Graph, name: str, cache: Cache) -> str:
    if cache == "none":
        return ""
    dims = ["batch_size", graph.shape.heads, "past_sequence_length", graph.shape.head_size]
    return graph.port(f"past_key_values.{name}", "FLOAT", dims)


def _present(graph: _Graph, output: str) -> None:
    dims = ["batch_size", graph.shape.heads, "total_sequence_length", graph.shape.head_size]
    graph.port(output, "FLOAT", dims, output=True)


def _of_encoder(graph: _Graph, home: str, layer: int, part: str, hidden: str, switch: str) -> str:
    """Keys or values of what the encoder gave: made in the first call, taken from the cache in the others."""
    name = f"present.{layer}.encoder.{part}"
    _present(graph, name)
    # Names of a branch are its own: those around it must not have them.
    inner = _Graph(graph.weights, graph.shape, prefix=f"{name}/")
    projected = inner.split(inner.linear(f"{home}.encoder_attn.{part[0]}_proj", hidden))
    if not switch:
        graph.nodes += inner.nodes
        graph.tensors |= inner.tensors
        return graph.add("Identity", projected, name=name)
    dims = ["batch_size", graph.shape.heads, "encoder_sequence_length", graph.shape.head_size]
    past = graph.port(f"past_key_values.{layer}.encoder.{part}", "FLOAT", dims)
    return graph.choose(switch, name, past, inner, projected)


def _causal_mask(graph: _Graph, begin: str, ids: str) -> str:
    """[position, all positions]: 0 where a token may look, far below 0 where it may not."""
    end = graph.add("Add", begin, graph.size(ids, 1))
    rows = graph.add("Unsqueeze", graph.span(begin, end), graph.constant(np.array([1], np.int64)))
    columns = graph.add(
        "Unsqueeze", graph.span(graph.constant(np.int64(0)), end), graph.constant(np.array([0], np.int64))
    )
    allowed = graph.add("LessOrEqual", columns, rows)
    return graph.add("Where", allowed, graph.constant(np.float32(0)), graph.constant(np.float32(-1e9)))


def _told_mask(graph: _Graph, mask: str) -> str:
    """The mask, and what the caller says that is no token."""
    mask_input = graph.port("attention_mask", "INT64", ["batch_size", "total_sequence_length"])
    hidden = graph.add("Equal", mask_input, graph.constant(np.int64(0)))
    far = graph.add("Where", hidden, graph.constant(np.float32(-1e9)), graph.constant(np.float32(0)))
    return graph.add("Add", mask, graph.add("Unsqueeze", far, graph.constant(np.array([1, 2], np.int64))))
