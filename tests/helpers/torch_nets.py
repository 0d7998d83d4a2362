"""A small net with one of each: for tests of what torch's operators cost and take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

#: The shape of its input, and the input itself.
SHAPE = (2, 3, 10, 10)
INPUTS = {"x": np.random.default_rng(0).random(SHAPE, np.float32)}


def net() -> Any:
    """Convolutions, an attention, a linear layer, a transform; half of the linear layer's weights are zero."""
    import torch

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 8, 3)
            self.depthwise = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
            self.norm = torch.nn.BatchNorm2d(8)
            self.head = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(8, 6))
            with torch.no_grad():
                self.head[1].weight[:3] = 0

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.norm(self.depthwise(self.stem(x))))
            x = torch.nn.functional.max_pool2d(x, 2)
            x = x.flatten(2).transpose(1, 2)
            x = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            return torch.fft.rfft(self.head(x).softmax(-1)).abs()

    torch.manual_seed(0)
    return Net().eval()


def exported(folder: Path) -> Path:
    """The net as a torch.export program."""
    import torch

    torch.export.save(torch.export.export(net(), (torch.from_numpy(INPUTS["x"]),)), folder / "net.pt2")
    return folder / "net.pt2"


def scripted(folder: Path) -> Path:
    """The net as TorchScript."""
    import torch

    torch.jit.trace(net(), (torch.from_numpy(INPUTS["x"]),)).save(folder / "net.pt")
    return folder / "net.pt"
