"""The agent's command line: what a turn and the operator say in it, how the prompt travels, what the agent may know."""

import pytest

from cursor_gateway.errors import AgentMisconfigured
from cursor_gateway.model.documents import Mode
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cursor.command import (
    CommandOptions,
    Program,
    check_version,
    command_for,
    environment_for,
    flags_of,
    proxy_in,
)
from tests.agent.arguments import COMMANDS, help_text

ALL = Program("/bin/cursor-agent", "2026.10.01-e373342", flags_of(help_text()))
BARE = Program("/bin/cursor-agent", "2025.08.01-abc", frozenset({"--print"}))
OLD = Program("/bin/cursor-agent", "2026.07.20-8cc9c0b", flags_of(help_text()))
SILENT = Program("/bin/cursor-agent", "unknown", frozenset())
LONGEST = 120 * 1024


def turn(prompt: str = "Say it.", *, mode: Mode = "agent", session_id: str | None = None) -> Turn:
    return Turn(
        run_id="chat_1", prompt=prompt, model="auto", mode=mode, workspace="/w", folder="/f", session_id=session_id
    )


def arguments(asked: Turn, program: Program = ALL, **options: object) -> list[str]:
    # the options are checked when they are made
    return command_for(asked, program, CommandOptions(**options)).arguments  # type: ignore[arg-type]


# --- options ------------------------------------------------------------------------------------------


def test_a_turn_names_its_output_its_model_and_its_workspace() -> None:
    assert command_for(turn(), ALL, CommandOptions()).arguments == [
        *["/bin/cursor-agent", "-p", "--output-format", "stream-json", "--stream-partial-output"],
        *["--model", "auto", "--workspace", "/w", "--trust"],
    ]


@pytest.mark.parametrize("options", [CommandOptions(), CommandOptions(force=True, trust=False)])
def test_an_agent_with_only_the_callers_tools_asks_for_nothing_and_is_never_forced(options: CommandOptions) -> None:
    """Its workspace is the gateway's own, so it is trusted whatever the operator says of others."""
    said = command_for(turn(), ALL, options, allowed_tools=("mcp", "read")).arguments
    assert said[-3:] == ["--trust", "--approve-mcps", "--allowed-tools=mcp,read"]
    assert "--force" not in said


def test_an_old_agent_is_given_only_the_options_it_knows() -> None:
    assert arguments(turn()) != arguments(turn(), BARE)
    assert arguments(turn(), BARE) == [
        *["/bin/cursor-agent", "-p", "--output-format", "stream-json", "--model", "auto", "Say it."]
    ]


def test_an_agent_that_does_not_list_its_options_is_given_all() -> None:
    assert arguments(turn(mode="plan"), SILENT) == arguments(turn(mode="plan"), OLD)


@pytest.mark.parametrize("mode", ["plan", "ask"])
def test_modes_of_the_agent_are_named(mode: Mode) -> None:
    said = arguments(turn(mode=mode))
    assert said[said.index("--mode") + 1] == mode


@pytest.mark.parametrize("mode", ["agent", "debug"])
def test_modes_of_ours_are_not(mode: Mode) -> None:
    assert "--mode" not in arguments(turn(mode=mode))


def test_a_mode_that_the_agent_lacks_is_refused_rather_than_left_out() -> None:
    with pytest.raises(AgentMisconfigured, match=r"2025\.08\.01-abc has no `ask` mode"):
        command_for(turn(mode="ask"), BARE, CommandOptions())


def test_the_operator_decides_about_trust_and_force() -> None:
    assert "--trust" not in arguments(turn(), trust=False)
    assert "--force" not in arguments(turn())
    assert "--force" in arguments(turn(), force=True)


@pytest.mark.parametrize("sandbox", ["enabled", "disabled"])
def test_the_operator_decides_about_the_sandbox(sandbox: str) -> None:
    given = arguments(turn(), sandbox=sandbox)
    assert given[given.index("--sandbox") + 1] == sandbox
    assert "--sandbox" not in arguments(turn())
    with pytest.raises(AgentMisconfigured, match="has no sandbox"):
        arguments(turn(), BARE, sandbox=sandbox)


def test_another_version_than_the_operators_is_refused() -> None:
    for wanted in ("", "2026.10.01", "2026.10.01-e373342"):
        check_version(ALL, wanted)
    with pytest.raises(AgentMisconfigured, match=r"2026\.10\.01-e373342 is installed, .*2026\.10\.22"):
        check_version(ALL, "2026.10.22")


def test_a_proxy_is_found_by_the_variable_that_sets_it() -> None:
    assert proxy_in({"https_proxy": "http://proxy:3128"}) == "https_proxy"
    assert proxy_in({"HTTPS_PROXY": "", "NO_PROXY": "*"}) == ""
    passed = environment_for({"NODE_USE_ENV_PROXY": "1", "HTTPS_PROXY": "http://proxy"}, [], None)
    assert {"NODE_USE_ENV_PROXY", "HTTPS_PROXY"} <= set(passed)


def test_headers_are_handed_on() -> None:
    said = arguments(turn(), headers={"X-Team": "a b", "X-Other": "c"})
    assert [said[at + 1] for at, word in enumerate(said) if word == "--header"] == ["X-Team: a b", "X-Other: c"]


def test_further_folders_are_named_where_the_agent_can_have_some() -> None:
    said = command_for(turn(), ALL, CommandOptions(), ["/a", "/b"]).arguments
    assert [said[at + 1] for at, word in enumerate(said) if word == "--add-dir"] == ["/a", "/b"]
    assert "--add-dir" not in command_for(turn(), BARE, CommandOptions(), ["/a"]).arguments


def test_a_plugin_is_named() -> None:
    said = command_for(turn(), ALL, CommandOptions(), plugin="/a").arguments
    assert said[said.index("--plugin-dir") + 1] == "/a"
    assert "--plugin-dir" not in arguments(turn())


def test_a_session_is_gone_on_with() -> None:
    said = arguments(turn(session_id="s-1"))
    assert said[said.index("--resume") + 1] == "s-1"
    assert "--resume" not in arguments(turn())


def test_flags_are_the_long_options_of_the_help_and_nothing_that_only_looks_like_one() -> None:
    assert flags_of("  -p, --print\n --output-format <f>  see --mode; not a--b, not ---c, not --9") == {
        "--print",
        "--output-format",
        "--mode",
    }


# --- the prompt ---------------------------------------------------------------------------------------


PROMPTS = ["Say it.", "two\nlines", "é \u2028 \U0001f600", " -p", "--force", "x" * LONGEST, "logout", "logout now"]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_prompt_is_no_argument_for_agents_that_read_stdin(prompt: str) -> None:
    """Every user of the machine can read the arguments of a process."""
    command = command_for(turn(prompt), ALL, CommandOptions())
    assert command.stdin == prompt.encode()
    assert command.arguments == command_for(turn("another"), ALL, CommandOptions()).arguments


@pytest.mark.parametrize(
    ("version", "reads"),
    [
        ("2026.08.04-abc", True),
        ("2027.01.01-abc", True),
        ("2026.07.16-abc", False),
        ("2025.12.31-abc", False),
        ("unknown", False),
    ],
)
def test_which_agents_read_stdin(version: str, reads: bool) -> None:
    program = Program("/bin/cursor-agent", version, frozenset())
    assert (command_for(turn(), program, CommandOptions()).stdin is not None) is reads


@pytest.mark.parametrize("prompt", ["Say it.", "two\nlines", "é \u2028 \U0001f600", " -p", "x" * LONGEST, "logout now"])
def test_for_older_agents_it_is_the_last_argument_and_stdin_is_closed(prompt: str) -> None:
    command = command_for(turn(prompt), OLD, CommandOptions())
    assert (command.arguments[-1], command.stdin) == (prompt, None)
    assert "--" not in command.arguments


@pytest.mark.parametrize("prompt", ["-p", "--force", "- a list", "--"])
def test_a_prompt_that_looks_like_an_option_is_none(prompt: str) -> None:
    command = command_for(turn(prompt), OLD, CommandOptions())
    assert (command.arguments[-2:], command.stdin) == (["--", prompt], None)


@pytest.mark.parametrize("prompt", ["x" * (LONGEST + 1), "é" * (LONGEST // 2 + 1), "a\0b", "logout", "update", "help"])
def test_a_prompt_that_no_argument_can_be_goes_by_stdin(prompt: str) -> None:
    command = command_for(turn(prompt), OLD, CommandOptions())
    assert command.stdin == prompt.encode()
    assert prompt not in command.arguments


@pytest.mark.parametrize("word", sorted(COMMANDS))
def test_no_command_of_the_agent_is_run_by_a_prompt(word: str) -> None:
    for program in (ALL, OLD):
        assert word not in command_for(turn(word), program, CommandOptions()).arguments


# --- the environment ----------------------------------------------------------------------------------


def test_the_agent_knows_what_is_listed_and_nothing_of_ours() -> None:
    listed = {"PATH": "/bin", "HOME": "/h", "LC_TIME": "C", "XDG_RUNTIME_DIR": "/r", "CURSOR_API_KEY": "k"}
    other = {"CURSOR_GATEWAY_API_KEY": "a", "OPENAI_API_KEY": "b", "CURSOR_CONFIG_DIR": "/u", "PATHS": "c"}
    assert environment_for({**listed, **other}, (), None) == {**listed, "NO_OPEN_BROWSER": "1"}


def test_the_operator_adds_names_and_beginnings_of_names() -> None:
    environ = {"NODE_OPTIONS": "a", "AWS_REGION": "b", "AWS_PROFILE": "c", "OTHER": "d", "NODE_OPTIONS_2": "e"}
    kept = environment_for(environ, ["NODE_OPTIONS", "AWS_*"], None)
    assert kept == {"NODE_OPTIONS": "a", "AWS_REGION": "b", "AWS_PROFILE": "c", "NO_OPEN_BROWSER": "1"}


def test_an_empty_key_is_none() -> None:
    assert "CURSOR_API_KEY" not in environment_for({"CURSOR_API_KEY": ""}, (), None)


def test_the_configuration_of_a_run_is_its_own() -> None:
    assert environment_for({"CURSOR_CONFIG_DIR": "/u"}, (), "/f/cursor")["CURSOR_CONFIG_DIR"] == "/f/cursor"


def test_no_browser_is_opened_whatever_the_environment_says() -> None:
    assert environment_for({"NO_OPEN_BROWSER": ""}, ["NO_OPEN_BROWSER"], None)["NO_OPEN_BROWSER"] == "1"
