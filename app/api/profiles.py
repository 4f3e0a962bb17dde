"""/profiles: what calibrations measured, to read and to take from one machine to another."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from starlette.convertors import PathConvertor, register_url_convertor

from app.api.context import ContextDep, answer_json
from app.api.openapi import describe_answer, describe_document
from app.api.problems import Problem
from app.api.reading import read_content
from app.errors import UnknownProfile
from app.profiles import find_profile, forget_profile, import_profile, list_profiles


class Text(PathConvertor):
    """A path in which a newline may stand, so that a name which has one is refused as such."""

    regex = "(?s:.*)"


register_url_convertor("text", Text())
router = APIRouter(prefix="/profiles", tags=["profiles"])


@router.get("", responses=describe_answer("ProfileList", "A profile of each name, newest first."))
async def read_profiles(context: ContextDep) -> Response:
    """The profile that each name gives, without its points."""
    return answer_json({"profiles": await list_profiles(context.crosspoint)})


@router.get("/{name:text}", responses=describe_answer("Profile", "The profile: raw points with their spread."))
async def read_profile(name: str, context: ContextDep) -> Response:
    """The profile of this name, as `crosspoint profile export` writes it: of several this machine's as it is now, else
    the latest."""
    try:
        found = await find_profile(context.crosspoint, name)
    except UnknownProfile as error:
        raise _unknown(error) from None
    return await asyncio.to_thread(lambda: answer_json(found.to_json()))


@router.put(
    "/{name:text}",
    responses=describe_answer("ProfileKept", "Kept under this name."),
    openapi_extra=describe_document("Profile"),
)
async def write_profile(name: str, request: Request, context: ContextDep) -> Response:
    """Take in a profile that another machine measured. What cannot be used is refused, and the stored one stays."""
    profile = await import_profile(context.crosspoint, await read_content(request), name)
    survey = await context.crosspoint.survey()
    return answer_json({"name": profile.name, "this_machine": profile.fingerprint == survey.fingerprint})


@router.delete("/{name:text}", status_code=204)
async def delete_profile(name: str, context: ContextDep) -> Response:
    """Forget every profile of this name."""
    try:
        await forget_profile(context.crosspoint, name)
    except UnknownProfile as error:
        raise _unknown(error) from None
    return Response(status_code=204)


def _unknown(error: UnknownProfile) -> Problem:
    return Problem(404, error.code, "Unknown profile", str(error), {"suggestions": list(error.suggestions)})
