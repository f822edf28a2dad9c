"""The commands of an interactive conversation, such as `/model`."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from cursor_gateway.cli.assembly.local_client import id_of
from cursor_gateway.cli.output import Trouble, aside, terminal
from cursor_gateway.cli.terminal import images
from cursor_gateway.cli.terminal.interview import read_line
from cursor_gateway.cli.terminal.line_editor import Suggestion
from cursor_gateway.model.changes import RevertedFile, RevertRequest
from cursor_gateway.model.documents import MODES

if TYPE_CHECKING:
    from cursor_gateway.cli.terminal.session import TerminalSession

_Run: TypeAlias = Callable[["TerminalSession", str], Awaitable[bool]]  # False: the person wants to leave

_RECENT = 10  # conversations
_KEYS = {
    "Enter": "send",
    "Alt-Enter, Ctrl-J": "new line",
    "Up, Ctrl-R": "earlier prompts; search them",
    "Tab": "complete a command, its argument, or a file after @",
    "Shift-Tab": "next mode",
    "Ctrl-V": "attach the image in the clipboard; the path of an image attaches it, too",
    "Ctrl-C": "stop the agent; clear the prompt; twice at an empty prompt: leave",
    "Ctrl-D": "leave",
    "! command": "run it in the shell, and give its output to the agent with your next message",
    "!! command": "run it in the shell only",
}


class SlashCommand(Struct, frozen=True):
    argument: str
    summary: str
    run: _Run


def find_command(text: str) -> SlashCommand | None:
    """None: it is a prompt that begins with a path. The beginning of a name is enough. Raises `Trouble`."""
    name = text.split()[0][1:]
    if name in COMMANDS:
        return COMMANDS[name]
    if "/" in name:
        return None
    fitting = [one for one in COMMANDS if one.startswith(name)]
    if len(fitting) == 1:
        return COMMANDS[fitting[0]]
    could_be = f" It could be {', '.join(f'/{one}' for one in fitting)}." if fitting else ""
    raise Trouble(f"There is no command /{name}.{could_be} /help lists them.")


async def suggestions(session: "TerminalSession", command: str, typed: str) -> list[Suggestion]:
    """For the argument of this command. Raises `CallFailed`."""
    match command:
        case "model":
            every = [Suggestion(one.id, one.name) for one in session.models]
        case "mode":
            every = [Suggestion(mode) for mode in MODES]
        case "resume":
            every = [Suggestion(one.id, one.title) async for one in session.client.conversations(limit=_RECENT)]
        case "changes" | "undo" if session.conversation_id:
            every = [Suggestion(one.path) for one in (await session.client.changes(session.conversation_id)).files]
        case _:
            every = []
    words = typed.lower().split()
    return [one for one in every if all(word in f"{one.text} {one.meaning}".lower() for word in words)]


# --- the next turn ----------------------------------------------------------------------------------


async def _model(session: "TerminalSession", name: str) -> bool:
    from cursor_gateway.cli.commands.models import table_of
    from cursor_gateway.sources.base import Model

    session.models = session.models or await session.client.models()
    if not name:
        found = [Model(one.id, one.name or one.id, one.default) for one in session.models]
        terminal().print(table_of(found))
        return True
    fitting = [
        one for one in await suggestions(session, "model", name) if one.text == name or name not in _ids(session)
    ]
    if len(fitting) != 1:
        several = (
            f"fits several models: {', '.join(one.text for one in fitting[:_RECENT])}" if fitting else "fits no model"
        )
        raise Trouble(f"{name!r} {several}; /model lists them.")
    session.model = fitting[0].text
    aside(f"The model is now {session.model}.")
    return True


def _ids(session: "TerminalSession") -> set[str]:
    return {one.id for one in session.models}


async def _mode(session: "TerminalSession", name: str) -> bool:
    if name:
        fitting = [mode for mode in MODES if mode.startswith(name)]
        if len(fitting) != 1:
            raise Trouble(f"There is no mode {name!r}; use one of {', '.join(MODES)}.")
        session.mode = fitting[0]
    aside(f"The mode is {session.status()[2]}. Modes: {', '.join(MODES)}.")
    return True


# --- conversations ----------------------------------------------------------------------------------


async def _new(session: "TerminalSession", _: str) -> bool:
    session.start_anew()
    aside("A new conversation.")
    return True


async def _resume(session: "TerminalSession", name: str) -> bool:
    from datetime import datetime

    from cursor_gateway.cli.commands.conversations import table_of

    if name:
        await session.resume(await id_of(session.client, name))
        return True
    found = [entry async for entry in session.client.conversations(limit=_RECENT)]
    if not found:
        aside("There are no conversations yet.")
        return True
    console = terminal()
    console.print(table_of(found, [], console.width, datetime.now().astimezone()))
    aside("Continue one with /resume and its id, or its first characters; Tab completes it.")
    return True


async def _copy(session: "TerminalSession", _: str) -> bool:
    text = (await session.client.response(_last_run(session))).text
    if not text:
        raise Trouble("The last answer has no text.")
    if not images.copy(text, sys.stdout):
        raise Trouble("The last answer is too long for the clipboard; use /export.")
    aside("Copied the last answer, if your terminal allows programs to set the clipboard (OSC 52).")
    return True


async def _export(session: "TerminalSession", name: str) -> bool:
    from cursor_gateway.cli.commands.conversations import FORM_OF_ENDING, whole_conversation, written_conversation

    _last_run(session)
    path = Path(name).expanduser() if name else Path(f"{Path(session.conversation_id).name}.md")  # never elsewhere
    if path.exists():
        raise Trouble(f"{path} exists already; name another file.")
    if path.suffix.lower() == ".html":
        from cursor_gateway.render.html import render_page

        text = render_page(await session.client.response(session.run_id), prompt="")
    else:
        whole = await whole_conversation(session.client, session.conversation_id)
        text = written_conversation(whole, FORM_OF_ENDING.get(path.suffix.lower(), "markdown"))
    path.write_text(text, encoding="utf-8")
    aside(f"Wrote {path}.")
    return True


def _last_run(session: "TerminalSession") -> str:
    if not session.run_id:
        raise Trouble("Nothing was said in this conversation yet.")
    return session.run_id


# --- files ------------------------------------------------------------------------------------------


async def _changes(session: "TerminalSession", name: str) -> bool:
    from cursor_gateway.render.cards import changed_file

    files = (await session.client.changes(session.conversation_id)).files if session.conversation_id else []
    chosen = [file for file in files if name in ("", file.path)]
    if name and not chosen:
        raise Trouble(f"{name} has not changed in this conversation; /changes lists what has.")
    if not files:
        aside("No files have changed in this conversation.")
    console = terminal()
    for file in chosen:
        console.print(changed_file(file, with_lines=bool(name) or len(files) == 1))
    if len(chosen) > 1:
        aside("/changes FILE shows the lines; /undo reverts the last turn, /undo FILE one file.")
    return True


async def _undo(session: "TerminalSession", name: str) -> bool:
    """Asks first, with a preview; what is then reverted is what it showed."""
    _last_run(session)
    chat_id = None if name else await _last_changing_run(session)
    if not name and chat_id is None:
        aside("There are no changes in this conversation that could be reverted.")
        return True
    wanted = RevertRequest(path=name or None, chat_id=chat_id, preview=True)
    preview = await session.client.revert(session.conversation_id, wanted)
    for file in preview.files:
        aside(_described(file))
    if all(file.action == "skipped" for file in preview.files) or not await _is_sure("Revert this? [y/N] "):
        return True
    wanted = replace(wanted, preview=False, token=None if preview.token is UNSET else preview.token)
    done = [
        file.path
        for file in (await session.client.revert(session.conversation_id, wanted)).files
        if file.action != "skipped"
    ]
    if chat_id is not None:
        session.undone.add(chat_id)
    aside(f"Reverted {', '.join(done)}.")
    session.notes.append(f"I have reverted your changes to {', '.join(done)}.")
    return True


def _described(file: RevertedFile) -> str:
    match file.action:
        case "skipped":
            return f"{file.path} stays as it is: {file.reason or 'it cannot be reverted'}."
        case "deleted":
            return f"{file.path} is deleted."
        case "restored":
            since = " Somebody has changed it after the agent; that is lost, too." if file.is_changed_since else ""
            return f"{file.path} gets its earlier content back (+{file.added or 0} -{file.removed or 0}).{since}"


async def _last_changing_run(session: "TerminalSession") -> str | None:
    """The newest run that changed files, without those that were undone."""
    for run in reversed((await session.client.conversation(session.conversation_id)).runs):
        if run.id not in session.undone and (await session.client.changes(session.conversation_id, run.id)).files:
            return run.id
    return None


async def _is_sure(question: str) -> bool:
    return (await read_line(question)).strip().lower() in ("y", "yes")


# --- the rest ---------------------------------------------------------------------------------------


async def _permissions(session: "TerminalSession", arguments: str) -> bool:
    from cursor_gateway.cli.commands.permissions import print_permissions

    verb, _, id = arguments.partition(" ")
    found = await session.client.permissions()
    if not verb:
        print_permissions(found)
        if found.permissions:
            aside("/permissions revoke ID revokes one.")
        return True
    fitting = [entry for entry in found.permissions if id and entry.id.startswith(id.strip())]
    if verb != "revoke" or len(fitting) != 1:
        raise Trouble("Type /permissions revoke and the beginning of one id from /permissions.")
    await session.client.revoke_permission(fitting[0].id)
    aside("Revoked; this applies from the next turn on.")
    return True


async def _help(_session: "TerminalSession", _: str) -> bool:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, command in COMMANDS.items():
        table.add_row(Text(f"/{name} {command.argument}", "cyan"), command.summary)
    table.add_row()
    for key, meaning in _KEYS.items():
        table.add_row(Text(key, "bold"), meaning)
    terminal().print(table)
    return True


async def _leave(_session: "TerminalSession", _: str) -> bool:
    return False


COMMANDS: dict[str, SlashCommand] = {
    "help": SlashCommand("", "List the commands and keys.", _help),
    "model": SlashCommand("[NAME]", "Choose the model, or list them.", _model),
    "mode": SlashCommand("[NAME]", "Choose the mode: agent, plan, ask or debug.", _mode),
    "new": SlashCommand("", "Start a new conversation.", _new),
    "resume": SlashCommand("[ID]", "Continue another conversation, or list them.", _resume),
    "changes": SlashCommand("[FILE]", "Show the files that the agent changed.", _changes),
    "undo": SlashCommand("[FILE]", "Revert the changes of the last turn, or of a file.", _undo),
    "permissions": SlashCommand("[revoke ID]", "List and revoke what the agent may do.", _permissions),
    "copy": SlashCommand("", "Copy the last answer to the clipboard.", _copy),
    "export": SlashCommand(
        "[FILE]", "Write the conversation to a file (.md, .json, .txt), or the last answer (.html).", _export
    ),
    "exit": SlashCommand("", "Leave.", _leave),
}
