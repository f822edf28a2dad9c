"""Do rendering jobs from standard input: `python -m cursor_gateway.render.worker`

A process of its own, so that a job can be killed: no thread can be, and a regular expression holds the interpreter's
lock. The kernel does it, at the CPU time that comes with the job. When standard input ends, so does the process.
"""

import signal
import struct
import sys
import time
from typing import BinaryIO

import msgspec

from cursor_gateway.model.changes import FileChange
from cursor_gateway.render.html.work import Job, Rendered, perform
from cursor_gateway.stages.changes import EditedFile, combined

JOB_HEAD = struct.Struct(">dI")  # CPU seconds, length
RESULT_HEAD = struct.Struct(">dI")  # CPU seconds that it took, length; nothing follows if the job failed


def main(jobs: BinaryIO, results: BinaryIO) -> None:
    decode, encode = msgspec.json.Decoder(Job | EditedFile).decode, msgspec.json.Encoder().encode
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    while len(head := jobs.read(JOB_HEAD.size)) == JOB_HEAD.size:
        seconds, length = JOB_HEAD.unpack(head)
        data = jobs.read(length)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            result = encode(_result(decode(data)))
        except Exception:  # noqa: BLE001 -- whatever it is, the document can still be shown as plain text
            result = b""
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        results.write(RESULT_HEAD.pack(time.process_time() - began, len(result)) + result)
        results.flush()


def _result(job: Job | EditedFile) -> Rendered | FileChange:
    return combined(job) if isinstance(job, EditedFile) else perform(job)


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
