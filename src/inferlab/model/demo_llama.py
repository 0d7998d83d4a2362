"""A Llama with seeded random weights, as a GGUF file that every engine of generation reads."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from inferlab.model.gguf import write_gguf

_CONTEXT = 2048


def write(
    file: BinaryIO, *, layers: int, hidden: int, heads: int, kv_heads: int, feed_forward: int, vocabulary: int
) -> None:
    """Write the model; it has no tokenizer, because prompts are token ids."""
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
        "llama.context_length": _CONTEXT,
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
