"""Reviews a change in CI: `git diff origin/main... | python review.py`. The exit status is 1 if it finds problems.

The agent cites the lines that it means, and each citation is a `code_reference` document. They are printed as
annotations of GitHub Actions. The whole answer is written to review.json, to be kept with the build.
"""

import sys
from pathlib import Path

from cursor_gateway import CallFailed, Client, CodeReferenceDocument, TextDocument, encode_response

TASK = """Review this change for bugs. For each bug, write one sentence that explains it, and then cite the lines as a
code reference (```start:end:path). If there are none, say so, and cite nothing.

"""


def main() -> int:
    with Client() as client:
        try:
            answer = client.chat(TASK + sys.stdin.read(), mode="ask")
        except CallFailed as error:
            print(f"::error::The review failed: {error}")
            return 2
    Path("review.json").write_bytes(encode_response(answer))
    explanation, findings = "", 0
    for document in answer.documents:
        match document:
            case TextDocument(content=text):
                explanation = " ".join(text.split())
            case CodeReferenceDocument(metadata=at):
                findings += 1
                print(f"::warning file={at.file_path},line={at.start_line},endLine={at.end_line}::{explanation}")
            case _:
                pass  # what the agent read to find out
    print(f"{findings} problem(s) found; {answer.usage.total_tokens} tokens used.")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
