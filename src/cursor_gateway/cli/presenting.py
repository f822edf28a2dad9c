"""Show a run as it goes, and let the user answer the agent's questions."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeAlias

from cursor_gateway.cli.forms import Form, output_of
from cursor_gateway.cli.interview import Answer, Interview
from cursor_gateway.cli.output import aside
from cursor_gateway.cli.terminals import unechoed
from cursor_gateway.errors import RequestError
from cursor_gateway.model.document_events import DocumentEvent, Done, Paused

Batches: TypeAlias = AsyncGenerator[list[DocumentEvent], None]
Follow: TypeAlias = Callable[[str], Batches]  # the events of the run of that id


async def present(batches: Batches, form: Form, answer: Answer, follow: Follow, *, is_interactive: bool) -> Done:
    """Includes the runs that follow from decisions at the end of one."""
    from cursor_gateway.client.failures import CallFailed

    if form == "view":
        aside()
    while True:
        interview = Interview()
        async with aclosing(batches):
            while not isinstance(last := await _shown(batches, form, interview), Done):
                if (reply := await interview.hold(last)) is not None:
                    await answer(last.envelope.id, reply)
        if not is_interactive or last.failure is not None or (reply := await interview.after()) is None:
            return last
        try:
            next_id = await answer(last.envelope.id, reply)
        except (CallFailed, RequestError) as error:  # the run itself is complete
            aside(str(error))
            return last
        if next_id == last.envelope.id:  # nothing new for the agent
            return last
        batches = follow(next_id)


async def _shown(batches: Batches, form: Form, interview: Interview) -> Paused | Done:
    """Up to the end, or to a question, for which the live view makes room."""
    with unechoed(), output_of(form) as output:
        async for events in batches:
            for event in events:
                output(event)
                interview.push(event)
            if isinstance(events[-1], Paused | Done):
                return events[-1]
    raise AssertionError("both sources end with `Done`, or raise")
