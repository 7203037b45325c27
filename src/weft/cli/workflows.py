"""The stored workflows of a server: deploy a version, list them, and let an alias stand for one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.identify import workflow_missing
from weft.cli.printing import definition_error, located, print_json, print_text, say
from weft.cli.server import AsJson, on_server
from weft.cli.table import age, table
from weft.errors import ApiError, DocumentError, Problem, UnreachableError, WeftError
from weft.sdk import calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.cli.server import RemoteServer
    from weft.sdk.calls import ApiCall

Name = Annotated[str, Parameter(help="the name of a workflow")]


def deploy(
    file: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="YAML, JSON, - (stdin), or path.py:variable")
    ],
    /,
    *,
    alias: Annotated[str | None, Parameter(metavar="A", help="let this alias stand for the version")] = None,
    as_json: AsJson = False,
) -> int:
    """Store a definition on the server, and print its version."""
    call = calls.deploy(file)

    async def work(server: RemoteServer) -> int:
        try:
            deployed = await server.ask(call)
        except ApiError as error:
            raise _in_lines(error, file) from error
        name, version = deployed["name"], deployed["version"]
        if alias is not None:
            await server.ask(calls.set_alias(name, alias, version))
        if as_json:
            print_json(deployed)
        else:
            print_text(f"{name} version {version}{f', {alias}' if alias else ''}\n")
        # A server that is too busy for it has stored the version all the same.
        with suppress(ApiError, UnreachableError):
            verdict = await server.ask(calls.check_deployed(call))
            for warning in _with_lines([Problem(**one) for one in verdict["warnings"]], file):
                say(located(file, warning, "warning: "))
        return 0

    return on_server(work)


def workflows(
    name: Annotated[str | None, Parameter(help="show the versions of this one")] = None,
    /,
    *,
    as_json: AsJson = False,
) -> int:
    """List the workflows, or the versions of one, newest first."""

    async def work(server: RemoteServer) -> int:
        items = [item async for item in server.items(calls.workflows())] if name is None else []
        if name is not None:
            # Read first: the list of versions does not have the aliases.
            one = await ask_workflow(name, calls.workflow(name), server)
            versions = [item async for item in server.items(calls.versions(name))]
            items = [{**item, "aliases": _aliases_of(item["version"], one)} for item in versions]
        if as_json:
            print_json({"items": items})
        elif name is not None:
            rows = [[i["version"], ", ".join(i["aliases"]), age(i["created_at"]), i["digest"]] for i in items]
            print_text(table(["VERSION", "ALIASES", "AGE", "DIGEST"], rows))
        elif items:
            print_text(table(["WORKFLOW", "LATEST", "AGE", "ALIASES"], [_row(item) for item in items]))
        else:
            say("there are no workflows; `weft deploy FILE` stores one")
        return 0

    return on_server(work)


def alias(
    name: Name,
    alias: Annotated[str, Parameter(help="a name for a version, such as prod")],
    version: Annotated[str | None, Parameter(help="the number of a version, or another alias")] = None,
    /,
    *,
    delete: Annotated[bool, Parameter(help="remove the alias")] = False,
    as_json: AsJson = False,
) -> int:
    """Let an alias stand for a version of a workflow, from now on."""
    if (version is None) is not delete:
        raise WeftError("give the version that the alias stands for, or --delete")

    async def work(server: RemoteServer) -> int:
        if version is None:
            await ask_workflow(name, calls.delete_alias(name, alias), server)
        else:
            # Through the server even for a number: one that does not exist is named before anything changes.
            found = await ask_workflow(name, calls.workflow(name, version=version_of(version)), server)
            await ask_workflow(name, calls.set_alias(name, alias, found["version"]), server)
        one = await server.ask(calls.workflow(name))
        if as_json:
            print_json({"name": name, "aliases": one["aliases"]})
        elif version is None:
            print_text(f"{name} has no alias {alias} any more\n")
        else:
            print_text(f"{alias} is {name} version {one['aliases'][alias]}\n")
        return 0

    return on_server(work)


def _in_lines(error: ApiError, file: str) -> WeftError:
    """Return the problems of a definition with their places in its file, or ``error`` where it has none."""
    if error.code == "bad_syntax":
        return DocumentError(f"{file}: {error}")
    if error.code != "invalid_definition":
        return error
    return definition_error(file, _with_lines(error.problems, file))


def _with_lines(problems: Sequence[Problem], file: str) -> Sequence[Problem]:
    """Return the problems with their lines, where the file is one of YAML or JSON."""
    path = Path(file)
    if not problems or not path.is_file() or path.suffix == ".py":
        return problems
    from weft.definition.source_lines import with_lines

    return with_lines(problems, path.read_bytes())


def version_of(text: str | None) -> int | str | None:
    """Read a version: a number, or else an alias."""
    return int(text) if text is not None and text.isdecimal() else text


async def ask_workflow(name: str, call: ApiCall[Any], server: RemoteServer) -> Any:
    """Ask something of a workflow by its name; one that is unknown may have been spelled wrong."""
    try:
        return await server.ask(call)
    except ApiError as error:
        raise await workflow_missing(name, error, server) from error


def _aliases_of(version: int, workflow: Mapping[str, Any]) -> list[str]:
    return sorted(name for name, number in workflow["aliases"].items() if number == version)


def _row(item: Mapping[str, Any]) -> list[object]:
    aliases = ", ".join(f"{name} {version}" for name, version in sorted(item["aliases"].items()))
    return [item["name"], item["version"], age(item["created_at"]), aliases]
