"""Channels that are kept or removed together: groups of them, and how axes of tensors are made up of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of an axis: all channels of a group, each `repeat` times in a row."""

    group: int
    size: int
    repeat: int = 1


#: An axis, as segments one after the other.
Layout = tuple[Segment, ...]


def length(layout: Layout) -> int:
    """How many elements an axis has."""
    return sum(one.size * one.repeat for one in layout)


def repeated(layout: Layout, times: int) -> Layout:
    """The axis with each of its elements so many times in a row."""
    return tuple(Segment(one.group, one.size, one.repeat * times) for one in layout)


class Groups:
    """Groups of channels, joined where tensors meet; a group that is held keeps all its channels."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._reasons: dict[int, str] = {}

    def new(self, size: int) -> Layout:
        """An axis of a new group's own."""
        self._parents.append(len(self._parents))
        return (Segment(len(self._parents) - 1, size),)

    def find(self, group: int) -> int:
        """The group that it has become part of."""
        while self._parents[group] != group:
            self._parents[group] = self._parents[self._parents[group]]
            group = self._parents[group]
        return group

    def hold(self, layout: Layout, reason: str) -> None:
        """Keep all channels of an axis; of several reasons the first counts."""
        for one in layout:
            self._reasons.setdefault(self.find(one.group), reason)

    def join(self, one: Layout, other: Layout) -> None:
        """Two axes whose elements belong to each other, one by one."""
        if [(part.size, part.repeat) for part in one] != [(part.size, part.repeat) for part in other]:
            reason = "its channels meet others that are divided in another way"
            self.hold(one, reason)
            self.hold(other, reason)
            return
        for first, second in zip(one, other, strict=True):
            root, gone = self.find(first.group), self.find(second.group)
            if root != gone:
                self._parents[gone] = root
                if gone in self._reasons:
                    self._reasons.setdefault(root, self._reasons[gone])

    def reason(self, group: int) -> str:
        """Why a group is held; empty where it is not."""
        return self._reasons.get(self.find(group), "")

    def kept(self, layout: Layout, keep: Mapping[int, Array]) -> Array:
        """The places on an axis that stay, where `keep` has the channels that stay of groups that lose some."""
        return np.concatenate([*self._places(layout, keep), np.empty(0, np.int64)])

    def _places(self, layout: Layout, keep: Mapping[int, Array]) -> Iterator[Array]:
        start = 0
        for one in layout:
            channels = keep.get(self.find(one.group), np.arange(one.size))
            yield start + (channels[:, None] * one.repeat + np.arange(one.repeat)).reshape(-1)
            start += one.size * one.repeat
