"""What a client needs to use a gateway: for one process (`StartPlan`), or in its configuration (`Kept`)."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Wire: TypeAlias = Literal["chat", "responses", "messages", "mcp"]

PROVIDER = "cursor-gateway"  # the name of the gateway in the clients' configurations
TITLE = "Cursor"
NO_KEY = "any"  # most clients insist on a key; a gateway without keys ignores it
CONTEXT_TOKENS = 200_000
OUTPUT_TOKENS = 32_000
KEY_VARIABLE = "CGW_API_KEY"  # not one of our own variables: those are settings
OWN_TOOLS = "its own tools: the agent requests them, and the client runs them in its folder, with its permissions"
WORKSPACE_HEADER = "x-cursor-workspace"
TEXT_HEADER = "x-cursor-text"


class OfferedModel(Struct, frozen=True):
    """A model of the gateway's."""

    id: str
    label: str


class GatewayAddress(Struct, frozen=True, kw_only=True):
    """A gateway, as a client sees it."""

    url: str  # http://127.0.0.1:8787
    key: str = NO_KEY
    models: Sequence[OfferedModel] = (OfferedModel("auto", "Auto"),)
    model: str = "auto"  # the default
    workspace: str = ""  # where the agent works if the client has no tools of its own; empty: the gateway's default

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def mcp_url(self) -> str:
        return f"{self.url}/mcp"

    @property
    def headers(self) -> dict[str, str]:
        """People read the text: what is said before and after a command must not run together, and what was not run
        must be seen."""
        return {**({WORKSPACE_HEADER: self.workspace} if self.workspace else {}), TEXT_HEADER: "readable"}


class StartPlan(Struct, frozen=True, kw_only=True):
    """How the client is started."""

    arguments: Sequence[str] = ()  # before the user's
    environment: Mapping[str, str | None] = {}  # None: removed
    files: Mapping[str, str] = {}  # in the temporary folder


class ConfigFolder(Struct, frozen=True):
    """Where a client keeps its configuration."""

    default: str  # `~` is the home directory
    variable: str = ""  # an environment variable that names another folder
    below_config: str = ""  # its name in $XDG_CONFIG_HOME, if the client follows that
    macos: str = ""  # if it is another one there


Path: TypeAlias = tuple[str, ...]


class JsonFile(Struct, frozen=True):
    """Values to put into a JSON file that may hold more, and may have comments."""

    folder: ConfigFolder
    name: str
    values: Sequence[tuple[Path, Any]]


class NewFile(Struct, frozen=True):
    """A file of its own; one that is there already is not touched."""

    folder: ConfigFolder
    name: str
    text: str


class ListItems(Struct, frozen=True):
    key: str  # of the list; empty: the file is a list
    items: Sequence[Any]


class YamlFile(Struct, frozen=True):
    """Entries to put into a YAML file that may hold more, and may have comments."""

    folder: ConfigFolder
    name: str
    text: str  # as a file that holds nothing else
    entries: Mapping[str, str] | ListItems  # strings by their keys, or items of a list


class Steps(Struct, frozen=True):
    """The client has no file to write: what to do by hand."""

    lines: Sequence[str]


KeptInFile: TypeAlias = JsonFile | YamlFile | NewFile
Kept: TypeAlias = KeptInFile | Steps


class LaunchPlan(Struct, frozen=True, kw_only=True):
    install: str
    start: Callable[[GatewayAddress, str], StartPlan]  # the second: the temporary folder
    once: str = '-p "What is this project?"'  # arguments that ask one question and print the answer
    aliases: Sequence[str] = ()  # other names of the program


class ClientProgram(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    wire: Wire = "chat"
    launch: LaunchPlan | None = None
    keep: Callable[[GatewayAddress], Kept]
    then: str  # how to use what is kept
    works: Sequence[str]
    limits: Sequence[str] = ()

    @property
    def programs(self) -> Sequence[str]:
        """The first on PATH is started."""
        return (self.name, *(self.launch.aliases if self.launch is not None else ()))


def to_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def listed(clients: Mapping[str, ClientProgram]) -> str:
    """Their names and titles, for the help of a command."""
    width = max(map(len, clients))
    return "\n".join(f"      {name:{width}}  {client.title}" for name, client in clients.items())
