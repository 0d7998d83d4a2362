"""Moonshine (speech to text) on ONNX Runtime: encoder, TPOT, real-time factor, and the words that are right."""

from __future__ import annotations

import argparse
import difflib
import re

from benchmarks import side_by_side as side

# Charles Dickens, A Tale of Two Cities, which the recording reads.
TEXT = """It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of
foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of
Light, it was the season of Darkness, it was the spring of hope, it was the winter of despair, we
had everything before us, we had nothing before us, we were all going direct to Heaven, we were all
going direct the other way – in short, the period was so far like the present period, that some of
its noisiest authorities insisted on its being received, for good or for evil, in the superlative
degree of comparison only."""


def main() -> None:
    """Measure and print one row for each number of cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-cores", default="1,2")
    parser.add_argument("-t", "--time", default="9")
    parser.add_argument("--processes", default="3")
    arguments = parser.parse_args()
    files = side.carried(side.MOONSHINE)
    clip = next(path for path in files if path.suffix == ".wav")
    folder = next(path.parent for path in files if path.name == "encoder_model.ort")
    options = ["-e", "onnxruntime", "--audio", str(clip), "--new", "160", "-ncores", arguments.num_cores]
    for row in side.generated(str(folder), *options, "-t", arguments.time, "--processes", arguments.processes):
        agreement = row["agreement"]
        keys = ("encoder_ms", "tpot_ms", "real_time_factor", "end_to_end_ms")
        numbers = ", ".join(f"{key} {side.number(row, key)}" for key in keys)
        print(
            f"{row['num_cores']} cores, {row['audio_s']:.1f} s of sound: {numbers}; "
            f"{agreement['agreeing']} of {agreement['positions']} tokens as the plain graph"
        )
        right, words = right_words(row["transcript"])
        print(f"# {right} of {words} words right: {row['transcript']}", flush=True)


def right_words(transcript: str) -> tuple[int, int]:
    """Words of the text that were heard, in their order, and how many there are."""
    expected, heard = (re.findall(r"[a-z]+", text.lower()) for text in (TEXT, transcript))
    blocks = difflib.SequenceMatcher(None, expected, heard, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks), len(expected)


if __name__ == "__main__":
    main()
