"""Two people watch one run. The agent asks a question, both answer, and the first answer counts.

A run belongs to nobody's connection: everyone with its id can read it from the beginning, and answer it. This needs
a backend that waits for answers, which `source="interactive"` chooses.
"""

import sys
import threading

from cursor_gateway import CallFailed, ClarificationDocument, Client, DocumentEnded, Paused, QuestionAnswer


def person(name: str, run_id: str, choice: int, together: threading.Barrier) -> None:
    with Client() as client, client.events(run_id) as run:
        for event in run:
            match event:
                case Paused():
                    waiting = client.response(run_id).documents[-1]
                    assert isinstance(waiting, ClarificationDocument)
                    question = waiting.metadata.questions[0]
                    option = question.options[choice]
                    together.wait()
                    print(f"{name} is asked: {question.text} {name} chooses {option.label}.")
                    answer = QuestionAnswer(question_id=question.id, selected_option_ids=[option.id])
                    try:
                        client.answer(run_id, answers=[answer])
                    except CallFailed as error:  # the other one was faster
                        print(f"{name} is told: {error}")
                case DocumentEnded(document=ClarificationDocument(metadata=asked)):
                    chosen = [id for answer in asked.answers or [] for id in answer.selected_option_ids]
                    print(f"{name} sees that {', '.join(chosen)} was chosen.")
                case _:
                    pass
        print(f"{name} reads: {run.result().text.splitlines()[-1]}")


def main() -> None:
    with Client() as client, client.stream(" ".join(sys.argv[1:]), may_ask=True, source="interactive") as run:
        together = threading.Barrier(2)
        people = [
            threading.Thread(target=person, args=(name, run.id, n, together)) for n, name in enumerate(("Ann", "Bob"))
        ]
        for one in people:
            one.start()
        for one in people:
            one.join()
        run.result()


if __name__ == "__main__":
    main()
