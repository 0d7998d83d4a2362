"""The machine, the server, and the folders below which it may open models."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from inferlab import machine
from inferlab.version import __version__
from inferlab.web.api.common import SmallBody, TheWorkspace
from inferlab.web.api.schemas import Answer
from inferlab.workspace.sources import Listing

router = APIRouter(tags=["system"], route_class=SmallBody)


class SystemFacts(Answer):
    """The machine that measures, and the server."""

    inferlab_version: str = Field(description="The version of inferlab.")
    store: str = Field(description="The store: a path, or a URL without its password.")
    folders: list[str] = Field(description="Models may be named by their path below these.")
    most_upload_bytes: int = Field(description="The largest upload that is taken.")
    node: str = Field(description="The machine's name.")
    system: str = Field(description="Its operating system.")
    cpu: str = Field(description="Its CPU.")
    architecture: str = Field(description="x86_64, aarch64, …")
    instruction_sets: list[str] = Field(description="What engines choose their kernels by.")
    vector_instructions: str = Field(description="The widest of them: avx512, avx2, …")
    physical_cores: int = Field(description="Physical cores that may be used.")
    usable_cores: int = Field(description="Cores that a measurement gets by default.")
    logical_cpus: int = Field(description="Logical CPUs that may be used.")
    numa_nodes: int = Field(description="NUMA nodes.")
    memory_bytes: int | None = Field(description="Memory.")
    cpu_quota: float | None = Field(description="CPUs' worth of time that the container may use; null: no limit.")


class FileFacts(Answer):
    """A file that may be a model."""

    name: str = Field(description="Its name.")
    size_bytes: int = Field(description="Its size.")


class FolderFacts(Answer):
    """What can be chosen in a folder."""

    path: str = Field(description="The folder.")
    parent: str | None = Field(description="The one that it is in; null for one of the allowed folders.")
    folders: list[str] = Field(description="The names of the folders in it.")
    files: list[FileFacts] = Field(description="The files in it that may be models.")
    is_model: bool = Field(description="The folder itself is a model, as Hugging Face's are.")
    is_cut: bool = Field(description="There is more than is listed.")

    @classmethod
    def more(cls, record: Listing, context: None) -> dict[str, Any]:
        """Files with names for what they have."""
        return {"files": [{"name": name, "size_bytes": size} for name, size in record.files]}


@router.get("/system", summary="The machine and the server")
def read_system(workspace: TheWorkspace) -> SystemFacts:
    """CPU, instruction sets, cores and memory of the machine that measures; version and store of the server."""
    about = machine.describe()
    return SystemFacts(
        inferlab_version=__version__,
        store=workspace.store.name,
        folders=[str(folder) for folder in workspace.sources.folders],
        most_upload_bytes=workspace.sources.most_bytes,
        vector_instructions=machine.vector_width(about.instruction_sets),
        usable_cores=machine.usable_cores(),
        **{name: getattr(about, name) for name in about.__slots__},
    )


@router.get("/folders", summary="What can be chosen in a folder")
def list_folder(
    workspace: TheWorkspace,
    path: Annotated[str, Query(description="A folder below an allowed one, or one of these.")] = ".",
) -> FolderFacts:
    """The folders and models in a folder that the user allowed; nothing is said about any other."""
    return FolderFacts.of(workspace.sources.listing(path))
