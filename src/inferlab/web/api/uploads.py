"""Uploads: the files of one model, streamed to the disk one by one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from inferlab.web.api.common import CONFLICT, PREFIX, TOO_LARGE, TOO_MANY, TheWorkspace, UploadId
from inferlab.web.api.schemas import Answer, of_record
from inferlab.workspace.sources import Received

router = APIRouter(tags=["uploads"])
_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


@of_record()
class UploadFacts(Answer):
    """Room for the files of one model."""

    id: str
    source: str
    most_bytes: int


@of_record(Received, without=("path",))
class ReceivedFacts(Answer):
    """A file that was received."""

    name: str

    @classmethod
    def more(cls, record: Received, context: Any) -> dict[str, Any]:
        """Where it lies is not given away."""
        return {"name": record.path.name}


@router.post("/uploads", status_code=201, summary="Begin an upload", responses=TOO_MANY)
def begin_upload(workspace: TheWorkspace, response: Response) -> UploadFacts:
    """Make room for the files of one model: its .onnx with its data, an .xml with its .bin, a .pt2, a .pt."""
    upload_id = workspace.sources.new_upload()
    response.headers["Location"] = f"{PREFIX}/uploads/{upload_id}"
    return UploadFacts(id=upload_id, source=f"upload:{upload_id}", most_bytes=workspace.sources.most_bytes)


@router.put(
    "/uploads/{upload_id}/{name}",
    status_code=201,
    summary="Send a file",
    responses={**CONFLICT, **TOO_LARGE, **TOO_MANY},
    openapi_extra={"requestBody": {"required": True, "description": "The bytes of the file.", **_BYTES}},
)
async def receive_file(
    workspace: TheWorkspace,
    upload_id: UploadId,
    name: Annotated[str, Path(description="The name of the file.")],
    request: Request,
) -> ReceivedFacts:
    """Write the body to the disk as it comes; what is too large or cut off leaves nothing behind.

    Where a name is sent twice at the same time, the request that came last wins; the other is answered with 409.
    """
    length_text = request.headers.get("content-length", "")
    size_bytes = int(length_text[:30]) if length_text.isascii() and length_text.isdigit() else None
    return ReceivedFacts.of(await workspace.sources.receive(upload_id, name, request.stream(), size_bytes))


@router.delete("/uploads/{upload_id}", status_code=204, summary="Remove an upload", responses=CONFLICT)
def remove_upload(workspace: TheWorkspace, upload_id: UploadId) -> None:
    """Remove the files of an upload of which no project was made."""
    workspace.remove_upload(upload_id)
