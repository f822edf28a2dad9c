"""Which run wrote which line, by the versions of a file."""

from cursor_gateway.model.changes import WrittenLines
from cursor_gateway.workspace.change_log import (
    ChangeStep,
    FileStep,
    FileVersion,
    KeepStep,
    RevertStep,
    TurnStep,
    version_of,
)
from cursor_gateway.workspace.line_authors import changes_by_file, written_lines


class History:
    """The versions of one file, and who made them."""

    def __init__(self) -> None:
        self.steps: list[ChangeStep] = []
        self._contents: dict[str, bytes] = {}

    def version(self, text: str | bytes | None, *, is_kept: bool = True) -> FileVersion | None:
        if text is None:
            return None
        data = text.encode() if isinstance(text, str) else text
        version = version_of(data, len(data), 0o644)
        if is_kept:
            self._contents[version.hash] = data
        return version

    def turn(self, run: str, before: str | None, after: str | bytes | None) -> "History":
        self.steps.append(TurnStep(run, [FileStep("a", self.version(before), self.version(after))]))
        return self

    def revert(self, before: str | None, after: str | None) -> "History":
        self.steps.append(RevertStep("undo_1", [FileStep("a", self.version(before), self.version(after))]))
        return self

    def content(self, version: FileVersion | None) -> bytes | None:
        return b"" if version is None else self._contents.get(version.hash)

    def found(self, now: str | bytes | None) -> list[WrittenLines]:
        (changes,) = changes_by_file(self.steps).values()
        return written_lines(changes, self.version(now), self.content)

    def authors(self, now: str | bytes | None) -> list[tuple[str, int, int]]:
        return [(one.chat_id, one.start, one.end) for one in self.found(now)]


def test_the_lines_of_a_new_file_are_the_runs() -> None:
    assert History().turn("one", None, "a\nb\n").authors("a\nb\n") == [("one", 1, 2)]


def test_a_line_keeps_its_author_while_others_change_around_it() -> None:
    history = History().turn("one", "x\ny\n", "x\nA\ny\n").turn("two", "x\nA\ny\n", "B\nx\nA\ny\nC\n")
    assert history.authors("B\nx\nA\ny\nC\n") == [("two", 1, 1), ("one", 3, 3), ("two", 5, 5)]


def test_what_others_wrote_is_nobodys_before_between_and_after() -> None:
    history = History().turn("one", "x\n", "x\nA\n").turn("two", "mine\nx\nA\n", "mine\nx\nA\nB\n")
    assert history.authors("mine\nx\nA\nB\n") == [("one", 3, 3), ("two", 4, 4)]
    assert history.authors("mine\nx\nchanged\nB\nmore\n") == [("two", 4, 4)]


def test_a_revert_gives_lines_back_to_who_wrote_them() -> None:
    history = History().turn("one", "x\n", "x\nA\n").turn("two", "x\nA\n", "x\n").revert("x\n", "x\nA\n")
    assert history.authors("x\nA\n") == [("one", 2, 2)]
    assert History().turn("one", "x\n", "x\nA\n").revert("x\nA\n", "x\n").authors("x\n") == []


def test_a_file_that_is_gone_or_was_made_again() -> None:
    assert History().turn("one", None, "a\n").authors(None) == []
    history = History().turn("one", None, "a\n").turn("two", "a\n", None).turn("three", None, "b\n")
    assert history.authors("b\n") == [("three", 1, 1)]


def test_of_contents_that_are_not_known_nothing_is_said() -> None:
    history = History()
    unknown = history.version("lost\n", is_kept=False)
    history.steps.append(TurnStep("one", [FileStep("a", unknown, history.version("lost\nA\n"))]))
    assert history.authors("lost\nA\n") == []
    history.turn("two", "lost\nA\n", "lost\nA\nB\n")
    assert history.authors("lost\nA\nB\n") == [("two", 3, 3)]
    assert History().turn("one", None, b"\0binary\n").authors(b"\0binary\n") == []


def test_a_change_of_the_mode_or_a_note_of_a_reviewer_is_no_change_of_lines() -> None:
    history = History().turn("one", None, "a\n")
    version = history.version("a\n")
    assert version is not None
    program = FileVersion(version.hash, version.size, 0o755)
    history.steps += [KeepStep({"a": version}), TurnStep("two", [FileStep("a", version, program)])]
    assert history.authors("a\n") == [("one", 1, 1)]


def test_the_hash_is_that_of_the_lines_whatever_their_ends_are() -> None:
    first, second = History().turn("one", None, "a\nb"), History().turn("one", None, "a\r\nb")
    assert [one.hash for one in first.found("a\nb")] == [one.hash for one in second.found("a\r\nb")]


def test_files_are_in_the_order_of_their_first_changes() -> None:
    steps: list[ChangeStep] = [
        TurnStep("one", [FileStep("b", None, None), FileStep("a", None, None)]),
        RevertStep("undo", [FileStep("b", None, None)]),
    ]
    found = changes_by_file(steps)
    assert [(path, [author for author, _ in changes]) for path, changes in found.items()] == [
        ("b", ["one", ""]),
        ("a", ["one"]),
    ]
