"""What is different where an encoder comes before the decoder: what fits, and what its tokens say."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.model.detokenizer import text_of
from inferlab.records.generation import Generation, GenerationCell, GenerativeModel


def refuse_long(cell: GenerationCell, model: GenerativeModel) -> None:
    """Refuse more tokens than the context has; an encoder's prompt and what is generated count apart."""
    if model.context is None:
        return
    tokens = decoder_tokens(cell, model)
    if model.encoder is None and tokens > model.context:
        raise BadInput(
            f"A depth of {cell.depth}, a prompt of {cell.prompt_tokens} and {cell.new_tokens} new tokens are "
            f"{tokens} tokens; the context of {model.source} has {model.context}. Give fewer."
        )
    if max(cell.prompt_tokens, tokens) > model.context:
        raise BadInput(
            f"The encoder and the decoder of {model.source} have room for {model.context} tokens each; a prompt "
            f"of {cell.prompt_tokens} or {cell.new_tokens} new tokens do not fit. Give fewer."
        )


def refuse_encoder(cell: GenerationCell, model: GenerativeModel, capabilities: Collection[str]) -> None:
    """Refuse what an encoder–decoder, or the engine with one, cannot do."""
    encoder = model.encoder
    if encoder is None:
        return
    if "encoder" not in capabilities:
        raise BadInput(
            f"Engine '{cell.engine}' runs decoders alone, and {model.source} has an encoder before its decoder. "
            f"Use -e {'torch' if model.kind == 'transformers' else 'onnxruntime'}."
        )
    if encoder.takes != "tokens" and not cell.audio_digest:
        raise BadInput(f"The encoder of {model.source} takes sound: give --audio with a WAV file.")
    if cell.depth:
        raise BadInput(
            f"{model.source} is an encoder–decoder: its cache holds nothing before the prompt. Leave --depth out."
        )
    if cell.rate is not None:
        raise BadInput(f"{model.source} is an encoder–decoder, which inferlab measures with -s sync only.")


def decoder_tokens(cell: GenerationCell, model: GenerativeModel) -> int:
    """Tokens of the decoder that a sequence has at its end."""
    if model.encoder is None:
        return cell.depth + cell.prompt_tokens + cell.new_tokens
    return len(model.encoder.start_tokens) + cell.new_tokens


def end_position(model: GenerativeModel, token_ids: tuple[int, ...]) -> int | None:
    """Which of the tokens is the first that ends the text of an encoder–decoder."""
    if model.encoder is None or model.encoder.end_token not in token_ids:
        return None
    return token_ids.index(model.encoder.end_token)


def transcript_of(model: GenerativeModel, one: Generation) -> str:
    """What the tokens of a sequence say of the sound; empty where nothing was heard or no tokenizer is there."""
    if one.audio_s is None:
        return ""
    said = one.token_ids if one.end_position is None else one.token_ids[: one.end_position]
    path = Path(model.path)
    try:
        return text_of(path if path.is_dir() else path.parent, said)
    except BadInput:
        return ""
