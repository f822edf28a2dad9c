"""A run's tokens in all, and those of its last model call, from what the agent says, does and reports."""

from msgspec import UNSET

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.actions import OtherTool
from cursor_gateway.model.agent_events import RunFailed, RunFinished, TokenCounts
from cursor_gateway.model.documents import Usage
from cursor_gateway.stages.tokens import estimate_tokens
from cursor_gateway.stages.turns import Turns
from cursor_gateway.stages.usage import RunUsage, UsageTotal

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
    assert agent.usage.total(counts) == agent.usage.last_call(counts) == figures


def test_an_answer_of_nothing_is_one_call() -> None:
    counts = TokenCounts(prompt=900, completion=0)
    agent = Agent()
    assert agent.usage.last_call(counts) == agent.usage.total(counts)


def test_of_several_calls_the_last_one_is_reported_beside_the_sum() -> None:
    agent = Agent("a prompt")
    for _ in range(9):
        agent.says("I look. ")
        agent.uses()
    agent.says("all done")
    counts = TokenCounts(prompt=240_000, completion=500, cached=216_000)
    usage = agent.usage.total(counts)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (240_000, 500, 216_000)
    assert usage.estimated is UNSET
    last = agent.usage.last_call(counts)
    assert 24_000 < last.prompt_tokens < 26_000
    assert last.completion_tokens == estimate_tokens("all done")
    assert last.cached_tokens == last.prompt_tokens * 9 // 10
    assert last.estimated is True


def test_results_that_nothing_was_said_to_were_read_by_another_call() -> None:
    agent = Agent()
    agent.uses()
    counts = TokenCounts(prompt=20_000, completion=9)
    last = agent.usage.last_call(counts)
    assert 10_000 < last.prompt_tokens < 10_200
    assert last.completion_tokens == 0


def test_without_figures_all_is_estimated() -> None:
    agent = Agent("a prompt of six plain words", known=3000)
    agent.says("I look. ")
    agent.uses()
    agent.says("Found it.")
    usage = agent.usage.total(None)
    assert usage.prompt_tokens == estimate_tokens("a prompt of six plain words")
    assert usage.completion_tokens == estimate_tokens("I look. ") + estimate_tokens("Found it.")
    assert usage.estimated is True
    last = agent.usage.last_call(None)
    assert 3100 < last.prompt_tokens < 3200
    assert last.completion_tokens == estimate_tokens("Found it.")
    assert last.estimated is True


def test_figures_below_zero_are_none() -> None:
    agent = Agent("a prompt")
    agent.says("Hello.")
    for counts in (TokenCounts(prompt=-1, completion=5), TokenCounts(prompt=5, completion=5, cached=-1)):
        for usage in (agent.usage.total(counts), agent.usage.last_call(counts)):
            assert (usage.prompt_tokens, usage.estimated) == (estimate_tokens("a prompt"), True)


def test_a_reply_that_asks_for_tools_tells_its_context_and_the_calls() -> None:
    agent = Agent("a prompt", known=500)
    agent.says("I look. ")
    agent.turns.tool(None)
    asked = OtherTool(tool="bash", arguments={"command": "ls -l"})
    first = agent.usage.last_call(None, [asked])
    assert first.prompt_tokens == 500 + estimate_tokens("a prompt")
    assert first.completion_tokens > estimate_tokens("I look. ") + estimate_tokens("ls -l")
    agent.turns.end()
    agent.usage.caller_result("word " * 300)
    agent.usage.tool_ended(OtherTool(tool="bash", arguments={"command": "ls -l"}, data="word " * 300))
    agent.turns.tool(None)
    assert agent.usage.total(None).prompt_tokens == estimate_tokens("a prompt") + 300
    assert agent.usage.last_call(None, [asked]).prompt_tokens >= first.prompt_tokens + estimate_tokens("I look. ") + 300


def test_an_agent_that_goes_on_with_a_run_reports_its_own_calls() -> None:
    agent = Agent("a prompt")
    agent.usage.agent_started()
    agent.says("I look. ")
    agent.uses()
    agent.usage.agent_started()
    agent.says("Found it.")
    own = TokenCounts(prompt=12_000, completion=4, cached=9000)
    assert agent.usage.last_call(own) == Usage(
        prompt_tokens=12_000, completion_tokens=4, total_tokens=12_004, cached_tokens=9000
    )


def test_what_the_first_agent_said_is_read_by_the_next() -> None:
    agent = Agent("a prompt")
    agent.says("word " * 50)
    agent.usage.agent_started()
    agent.says("Found it.")
    assert agent.turns.count == 2
    assert agent.usage.last_call(None).prompt_tokens == estimate_tokens("a prompt") + 50


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
