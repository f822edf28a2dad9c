"""Sends the prompts in a file, one per line, and writes the answers to answers.jsonl.

`start` sends a prompt with `Prefer: respond-async`: the gateway accepts it at once, and the run needs no connection.
Each prompt has an idempotency key, so a program that was interrupted can be run again, and no prompt is paid twice.
"""

import asyncio
import hashlib
import json
import sys
from pathlib import Path

from cursor_gateway import AsyncClient, CallFailed

AT_ONCE = 4  # below the gateway's `max_runs`


async def ask(client: AsyncClient, prompt: str) -> dict[str, str]:
    key = hashlib.sha256(prompt.encode()).hexdigest()
    try:
        id = await client.start(prompt, mode="ask", idempotency_key=key)
        async with client.events(id) as stream:
            answer = await stream.result()
        return {"prompt": prompt, "id": id, "answer": answer.text}
    except CallFailed as error:
        return {"prompt": prompt, "id": error.chat_id, "error": str(error)}


async def main() -> int:
    prompts = [line for line in Path(sys.argv[1]).read_text().splitlines() if line]
    free, done, failed = asyncio.Semaphore(AT_ONCE), 0, 0
    with open("answers.jsonl", "w", encoding="utf-8") as file:
        async with AsyncClient() as client:

            async def one(prompt: str) -> dict[str, str]:
                async with free:
                    return await ask(client, prompt)

            for answered in asyncio.as_completed([one(prompt) for prompt in prompts]):
                answer = await answered
                file.write(json.dumps(answer) + "\n")
                done, failed = done + 1, failed + ("error" in answer)
                bar = "#" * (40 * done // len(prompts))
                print(f"\r[{bar:40}] {done}/{len(prompts)}, {failed} failed", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
