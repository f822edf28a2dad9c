"""The words of a command line in; the options, the operands and what is unknown, out.

Follows commander, which the program uses: options stand anywhere before `--`, a required value is taken even
if it looks like an option, and after the first unknown option the rest is a subcommand's.
"""

from _collections_abc import Iterable, Sequence  # without `collections`, which takes longer

from tests.agent.failures import Failure

VISIBLE = (
    ("-v, --version", "Print the version"),
    ("--api-key <key>", "Key to log in with (or CURSOR_API_KEY)"),
    ("-H, --header <header>", "A header for the agent's requests; may be repeated"),
    ("-e, --endpoint <url>", "Address of the service (or CURSOR_API_ENDPOINT)"),
    ("-p, --print", "Print the answer, for scripts; all tools are at hand"),
    ("--output-format <format>", "With --print: text | json | stream-json (default: text)"),
    ("--stream-partial-output", "With --print and stream-json: text in deltas"),
    ("--mode <mode>", 'Execution mode (choices: "plan", "ask")'),
    ("--plan", "Short for --mode=plan"),
    ("--resume [chatId]", "Resume a session"),
    ("--continue", "Continue the previous session"),
    ("--model <model>", "Model to use"),
    ("--list-models", "List the models and exit"),
    ("-f, --force", "Allow commands unless explicitly denied"),
    ("--yolo", "The same as --force"),
    ("--auto-review", "Let a classifier allow what is safe"),
    ("--sandbox <mode>", 'Sandbox, over the configuration (choices: "enabled", "disabled")'),
    ("--approve-mcps", "Approve all MCP servers"),
    ("--trust", "Trust the workspace without asking"),
    ("--workspace <path-or-name>", "Workspace (default: the current directory)"),
    ("--add-dir <path>", "One more root of the workspace; may be repeated"),
    ("--plugin-dir <path>", "The directory of a plugin; may be repeated"),
    ("-w, --worktree [name]", "Work in a git worktree of its own"),
    ("--worktree-base <branch>", "What the worktree starts from"),
    ("--skip-worktree-setup", "Leave the worktree's setup out"),
    ("-h, --help", "Print this help"),
)
HIDDEN = (
    "--auth-token <token>",
    "-k, --insecure",
    "--new-session-id <uuid>",
    "--show-thinking",
    "--printenv",
    "--single-turn",
    "--background-shell-timeout <seconds>",
    "--allowed-tools <names>",
    "--exclude-tools <names>",
    "--conversation-history-file <path>",
    "--system-prompt <file>",
    "--exclude-workspace-context",
    "--data-dir <path>",
    "--agent-endpoint <url>",
    "--harness <name>",
    "--dev-raw-model-slug <slug>",
    "--repo-http-version <version>",
    "-c, --cloud",
    "-b, --background",
)
COMMANDS = {
    "login": "Log in",
    "logout": "Log out",
    "status": "Say who is logged in",
    "whoami": "The same as status",
    "about": "Version, system and account",
    "models": "List the models",
    "create-chat": "Make an empty chat and print its id",
    "agent": "Start the agent",
    "update": "Update the program",
    "ls": "List the chats",
    "resume": "Resume the latest chat",
    "mcp": "Manage MCP servers",
    "plugin": "Manage plugins",
    "team": "Manage the team",
    "persist": "Keep sessions running",
    "worker": "Run a worker",
    "bedrock": "Set up Bedrock",
    "generate-rule": "Write a rule",
    "install-shell-integration": "Install the shell integration",
    "uninstall-shell-integration": "Remove the shell integration",
    "help": "Print help",
}
HIDDEN_COMMANDS = ("acp", "sandbox")
CHOICES = {"mode": ("plan", "ask"), "sandbox": ("enabled", "disabled"), "format": ("text", "json")}


class Option:
    def __init__(self, flags: str) -> None:
        names, separator, value = flags.partition(" <" if "<" in flags else " [")
        self.placeholder = separator.strip() + value
        self.flags = flags
        self.spellings = names.split(", ")
        self.name = self.spellings[-1].removeprefix("--")

    @property
    def required(self) -> bool:
        return self.placeholder.startswith("<")

    @property
    def optional(self) -> bool:
        return self.placeholder.startswith("[")


class Parsed:
    def __init__(self) -> None:
        self.given: dict[str, list[str]] = {}
        self.operands: list[str] = []
        self.unknown: list[str] = []

    def flag(self, *names: str) -> bool:
        return any(name in self.given for name in names)

    def value(self, name: str) -> str | None:
        return self.given[name][-1] if name in self.given else None

    def take(self, option: Option, value: str) -> None:
        choices = CHOICES.get(option.name)
        if choices and value not in choices:
            allowed = f"Allowed choices are {', '.join(choices)}."
            raise Failure(f"error: option '{option.flags}' argument '{value}' is invalid. {allowed}")
        self.given.setdefault(option.name, []).append(value)


def options(flags: Iterable[str]) -> dict[str, Option]:
    return {spelling: option for option in map(Option, flags) for spelling in option.spellings}


def root_options(missing: Iterable[str] = ()) -> dict[str, Option]:
    """Without those that a build does not know."""
    known = options([*(flags for flags, _ in VISIBLE if not flags.endswith("--help")), *HIDDEN])
    return {spelling: option for spelling, option in known.items() if spelling not in missing}


def parse(words: Sequence[str], known: dict[str, Option]) -> Parsed:
    parsed = Parsed()
    rest = list(reversed(words))
    into = parsed.operands
    while rest:
        word = rest.pop()
        if word == "--":
            if into is parsed.unknown:
                into.append(word)
            into.extend(reversed(rest))
            break
        if (option := known.get(word)) is not None:
            parsed.take(option, _value(option, rest))
        elif not _looks_like_an_option(word):
            into.append(word)
        elif (option := known.get(word[:2])) is not None and not word.startswith("--"):
            if option.required or option.optional:
                parsed.take(option, word[2:])
            else:
                parsed.take(option, "")
                rest.append(f"-{word[2:]}")  # -pf is -p -f
        elif "=" in word and (option := known.get(word.partition("=")[0])) is not None and option.placeholder:
            parsed.take(option, word.partition("=")[2])
        else:
            into = parsed.unknown
            into.append(word)
    return parsed


def _value(option: Option, rest: list[str]) -> str:
    if option.required:
        if not rest:
            raise Failure(f"error: option '{option.flags}' argument missing")
        return rest.pop()
    if option.optional and rest and not _looks_like_an_option(rest[-1]):
        return rest.pop()
    return ""


def _looks_like_an_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-")


def help_text() -> str:
    rows = [("Arguments:", [("prompt", "What to begin with")]), ("Options:", VISIBLE), ("Commands:", COMMANDS.items())]
    sections = ["\n".join([title, *(f"  {name:<28} {text}" for name, text in row)]) for title, row in rows]
    return "\n\n".join(["Usage: agent [options] [command] [prompt...]", "Start the Cursor Agent", *sections])
