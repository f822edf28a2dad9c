"""A run's tokens in all, and those of one reply, from what the agent says, does and reports."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.agent_events import OtherTool, RunFailed, RunFinished, TokenCounts
from cursor_gateway.model.documents import Usage
from cursor_gateway.stages.tokens import estimate_tokens
from cursor_gateway.stages.usage import RunUsage, Turns, UsageTotal, tool_tokens

READ = OtherTool(tool="read_file", arguments={"target_file": "a.py"}, data="word " * 100)


class Agent:
    """Says and does things, as the assembler tells of them."""

    def __init__(self, prompt: str = "", known: int = 0) -> None:
        self.turns = Turns()
        self.usage = RunUsage(self.turns, known)
        self.usage.prompt = prompt

    def says(self, text: str) -> None:
        self.turns.output()
        self.usage.model_output.append(text)

    def uses(self, tool: OtherTool = READ) -> None:
        self.turns.tool(None)
        self.turns.end()
        self.usage.tool_ended(tool)


def test_one_call_is_all() -> None:
    agent = Agent("a prompt")
    agent.says("Hello.")
    counts = TokenCounts(prompt=900, completion=40, cached=700)
    figures = Usage(prompt_tokens=900, completion_tokens=40, total_tokens=940, cached_tokens=700)
    assert agent.usage.total(counts) == agent.usage.reply(counts) == figures


def test_an_answer_of_nothing_is_one_call() -> None:
    counts = TokenCounts(prompt=900, completion=0)
    agent = Agent()
    assert agent.usage.reply(counts) == agent.usage.total(counts)
    assert agent.usage.total(counts).estimated is UNSET


def test_of_several_calls_all_output_and_the_size_of_the_context_are_reported_beside_the_sum() -> None:
    agent = Agent("a prompt")
    for _ in range(9):
        agent.says("I look. ")
        agent.uses()
    agent.says("all done")
    counts = TokenCounts(prompt=240_000, completion=500, cached=216_000, reasoning=50)
    usage = agent.usage.total(counts)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (240_000, 500, 216_000)
    assert usage.estimated is UNSET
    reply = agent.usage.reply(counts)
    assert 24_000 < reply.total_tokens < 26_000
    assert (reply.completion_tokens, reply.reasoning_tokens) == (500, 50)
    assert reply.prompt_tokens == reply.total_tokens - 500
    assert 0.85 < (reply.cached_tokens or 0) / reply.prompt_tokens < 0.95
    assert reply.estimated is True


def test_results_that_nothing_was_said_to_were_read_by_another_call() -> None:
    agent = Agent()
    agent.says("I look.")
    agent.uses()
    counts = TokenCounts(prompt=20_000, completion=9)
    reply = agent.usage.reply(counts)
    assert 10_000 < reply.total_tokens < 10_200
    assert reply.completion_tokens == 9  # the answer is not empty, although the last call wrote nothing


def test_an_agent_that_reports_no_output_has_its_output_estimated() -> None:
    agent = Agent()
    agent.says("Hello.")
    counts = TokenCounts(prompt=900, completion=0, cached=700)
    expected = Usage(prompt_tokens=900, completion_tokens=2, total_tokens=902, cached_tokens=700, estimated=True)
    assert agent.usage.total(counts) == agent.usage.reply(counts) == expected


def test_without_figures_all_is_estimated() -> None:
    agent = Agent("a prompt of six plain words", known=3000)
    agent.says("I look. ")
    agent.uses()
    agent.says("Found it.")
    usage = agent.usage.total(None)
    wrote = estimate_tokens("I look. ") + tool_tokens(READ)[0] + estimate_tokens("Found it.")
    assert usage.prompt_tokens == estimate_tokens("a prompt of six plain words")
    assert usage.completion_tokens == wrote
    assert usage.estimated is True
    reply = agent.usage.reply(None)
    assert 3100 < reply.prompt_tokens < 3200
    assert reply.completion_tokens == wrote
    assert reply.estimated is True


@given(
    steps=st.lists(st.sampled_from(["say", "use", "restart", "pause"]), max_size=12),
    counts=st.none() | st.builds(TokenCounts, prompt=st.integers(0, 10**6), completion=st.integers(0, 10**4)),
)
def test_a_reply_that_has_text_has_tokens(steps: list[str], counts: TokenCounts | None) -> None:
    agent = Agent("a prompt")
    for step in steps:
        match step:
            case "say":
                agent.says("Some words. ")
            case "use":
                agent.uses()
            case "restart":
                agent.usage.agent_started()
            case _:
                agent.usage.paused([READ], ends_reply=True)
                agent.uses()
    agent.says("Done.")
    usage = agent.usage.reply(counts)
    assert usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens >= 0


def test_figures_below_zero_are_none() -> None:
    agent = Agent("a prompt")
    agent.says("Hello.")
    for counts in (TokenCounts(prompt=-1, completion=5), TokenCounts(prompt=5, completion=5, cached=-1)):
        for usage in (agent.usage.total(counts), agent.usage.reply(counts)):
            assert (usage.prompt_tokens, usage.estimated) == (estimate_tokens("a prompt"), True)


def test_a_reply_that_asks_for_tools_has_its_context_and_the_arguments() -> None:
    agent = Agent("a prompt", known=500)
    agent.says("I look. ")
    agent.turns.tool(None)
    asked = OtherTool(tool="bash", arguments={"command": "ls -l"})
    first = agent.usage.paused([asked], ends_reply=True)
    assert first.prompt_tokens == 500 + estimate_tokens("a prompt")
    assert first.completion_tokens == estimate_tokens("I look. ") + tool_tokens(asked)[0]
    agent.turns.end()
    agent.usage.caller_result("word " * 12)
    agent.usage.tool_ended(OtherTool(tool="bash", arguments={"command": "ls -l"}, data="word " * 12))
    agent.turns.tool(None)
    assert agent.usage.total(None).prompt_tokens == estimate_tokens("a prompt") + 12
    second = agent.usage.paused([asked], ends_reply=True)
    assert second.prompt_tokens >= first.total_tokens + 12
    assert second.completion_tokens == tool_tokens(asked)[0]  # each reply has what was written for it


def test_a_run_that_waits_for_somebody_else_has_one_reply() -> None:
    agent = Agent("a prompt")
    agent.says("I look. ")
    assert agent.usage.paused([READ], ends_reply=False).completion_tokens > estimate_tokens("I look. ")
    agent.uses()
    agent.says("Done.")
    wrote = estimate_tokens("I look. ") + tool_tokens(READ)[0] + estimate_tokens("Done.")
    assert agent.usage.reply(None).completion_tokens == wrote


def test_after_a_pause_the_agents_figures_are_those_of_several_replies() -> None:
    agent = Agent("a prompt")
    agent.says("I look. ")
    agent.usage.paused([READ], ends_reply=True)
    agent.uses()
    agent.says("Found it.")
    reply = agent.usage.reply(TokenCounts(prompt=20_000, completion=400))
    assert (reply.completion_tokens, reply.estimated) == (estimate_tokens("Found it."), True)
    assert 10_000 < reply.prompt_tokens < 10_200


def test_calls_that_another_agent_never_ends_do_not_make_its_output_negative() -> None:
    agent = Agent("a prompt")
    agent.usage.paused([READ], ends_reply=True)
    agent.usage.agent_started()
    agent.says("Hi.")
    reply = agent.usage.reply(TokenCounts(prompt=20, completion=0, reasoning=3))
    assert reply.completion_tokens == estimate_tokens("Hi.")
    assert reply.total_tokens == 20 + estimate_tokens("Hi.")


def test_an_agent_that_goes_on_with_a_run_reports_its_own_calls() -> None:
    agent = Agent("a prompt")
    agent.usage.agent_started()
    agent.says("I look. ")
    agent.uses()
    agent.usage.agent_started()
    agent.says("Found it.")
    own = TokenCounts(prompt=12_000, completion=4, cached=9000)
    before = estimate_tokens("I look. ") + tool_tokens(READ)[0]
    assert agent.usage.reply(own) == Usage(
        prompt_tokens=12_000 - before,
        completion_tokens=before + 4,
        total_tokens=12_004,
        cached_tokens=9000,
        estimated=True,
    )


def test_what_the_first_agent_said_is_read_by_the_next() -> None:
    agent = Agent("a prompt")
    agent.says("word " * 10)
    agent.usage.agent_started()
    agent.says("Found it.")
    assert agent.turns.count == 2
    found = estimate_tokens("Found it.")
    reply = agent.usage.reply(None)
    assert (reply.prompt_tokens, reply.completion_tokens) == (estimate_tokens("a prompt"), 10 + found)


# --- an agent that was started several times ---------------------------------------------------------


COUNTS = TokenCounts(prompt=10, completion=2, cached=4)


def test_turns_add_up() -> None:
    spending = UsageTotal()
    for _ in range(2):
        spending.add(RunFinished(usage=COUNTS, duration_ms=5))
    total = spending.total(RunFinished(usage=COUNTS, duration_ms=5, text_differs=True))
    assert total == RunFinished(
        usage=TokenCounts(prompt=20, completion=4, cached=8), last_usage=COUNTS, duration_ms=10, text_differs=True
    )


def test_what_was_not_reported_makes_the_whole_unknown() -> None:
    spending = UsageTotal()
    spending.add(RunFinished(usage=None, duration_ms=5))
    spending.add(RunFinished(usage=COUNTS, duration_ms=None))
    assert spending.total(RunFinished(usage=COUNTS)) == RunFinished(usage=None, last_usage=COUNTS, duration_ms=5)
    broken_off = UsageTotal()
    broken_off.cut()
    failed = RunFailed(failure=AgentCrashed().failure(), usage=COUNTS)
    broken_off.add(failed)
    assert broken_off.total(failed).usage is None


def test_a_reply_is_not_more_than_is_reported_for_the_run() -> None:
    agent = Agent("a prompt")
    agent.says("before the agent said that it had started")
    agent.usage.agent_started()
    counts = TokenCounts(prompt=20, completion=1)
    assert agent.usage.reply(counts, counts).completion_tokens == 1


def test_the_context_does_not_shrink_between_replies() -> None:
    agent = Agent("a prompt")
    agent.uses()
    first = agent.usage.paused([], ends_reply=True)
    agent.turns.tool(None)
    agent.turns.end()
    agent.says("a much longer answer " * 200)
    agent.usage.tool_ended(OtherTool(tool="read_file", arguments={"target_file": "a long path " * 500}))
    assert agent.usage.reply(None).prompt_tokens >= first.prompt_tokens > 0
