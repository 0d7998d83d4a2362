"""Operations as inferlab counts them, beside the figures that were published for the architectures."""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.model.flops.count import costs
from inferlab.model.onnx_file import read_onnx
from inferlab.model.reading import build_demo
from inferlab.model.shapes import resolve
from inferlab.profiling.layers import flops_profile


@dataclass(frozen=True, slots=True)
class Published:
    """What was published of an architecture: millions of multiply-adds, and by whom."""

    model: str
    shape: str
    mega_macs: float
    source: str


# BERT-base's figure is the one usually quoted for its encoder. By hand: for each token a layer takes
# 4 × 768² + 2 × 768 × 3072 multiply-adds and 2 × 768 × 128 for attention; × 12 layers × 128 tokens = 11.174 G.
PUBLISHED = (
    Published("resnet50", "224 × 224", 4090, "torchvision's documentation: 4.09 G, a multiply-add as one"),
    Published("mobilenet_v1", "224 × 224", 569, "Howard et al. 2017: 569 M multiply-adds"),
    Published("mobilenet_v2", "224 × 224", 300, "Sandler et al. 2018: 300 M multiply-adds"),
    Published("bert_base", "128 tokens", 11_200, "22.5 GFLOP as usually quoted: 11.2 G multiply-adds"),
)
_MARGIN = 0.02


def main() -> None:
    """Print the table; fail where a count is more than 2 % off."""
    print(
        f"{'model':14}{'input':12}{'GMAC':>8}{'published':>11}{'off by':>8}{'GFLOP':>8}{'parameters':>13}  source"
    )
    worst = 0.0
    for row in PUBLISHED:
        model = read_onnx(build_demo(row.model), f"demo:{row.model}")
        shapes = resolve(model.inputs, 1, None, {}).shapes
        profile = flops_profile(costs(model, shapes), 1, shapes)
        off = profile.macs / 1e6 / row.mega_macs - 1
        worst = max(worst, abs(off))
        assert not profile.uncounted, profile.uncounted
        print(
            f"{row.model:14}{row.shape:12}{profile.macs / 1e9:8.3f}{row.mega_macs / 1e3:11.3f}{off:8.1%}"
            f"{profile.flops / 1e9:8.3f}{profile.params:13,}  {row.source}"
        )
    print(f"largest difference {worst:.1%}  (aim: at most {_MARGIN:.0%})")
    assert worst <= _MARGIN


if __name__ == "__main__":
    main()
