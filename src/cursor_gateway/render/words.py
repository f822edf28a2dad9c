"""What all views say in the same words: durations, tokens, lines, operations, answers. Unknown figures are empty."""

from msgspec import UnsetType

from cursor_gateway.model.documents import ClarificationMetadata, ClarificationQuestion, Operation, Usage

OPERATIONS: dict[Operation, str] = {"create": "Created", "edit": "Edited", "delete": "Deleted", "rename": "Renamed"}


def duration(milliseconds: int) -> str:
    if milliseconds <= 0:
        return ""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes} min {seconds:02d} s"


def thinking(duration_ms: int | UnsetType) -> str:
    """What a block of thinking is called."""
    if not duration_ms:
        return "Thinking"
    return f"Thought for {duration(duration_ms) if duration_ms < 10_000 else _whole_seconds(duration_ms)}"


def _whole_seconds(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    return f"{seconds} s" if seconds < 60 else duration(milliseconds)


def tokens(usage: Usage, unit: str = "") -> str:
    """`unit` follows the first figure."""
    if not usage.total_tokens:
        return ""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    estimated = ", estimated" if usage.estimated is True else ""
    return f"{usage.prompt_tokens:,} {unit}in{cached}, {usage.completion_tokens:,} out{estimated}"


def line_range(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first}-{last}"


def answer_to(question: ClarificationQuestion, metadata: ClarificationMetadata) -> tuple[set[str], str]:
    """The ids of the chosen options, and the text; both empty if there is no answer."""
    given = [answer for answer in metadata.answers or [] if answer.question_id == question.id]
    chosen = {id for answer in given for id in answer.selected_option_ids}
    return chosen, " ".join(answer.text for answer in given if answer.text)
