"""OpenAI's and Anthropic's SDKs for Python with their own retries: one question, and what the program's user sees."""

from anthropic import Anthropic
from openai import OpenAI

from tests.clients.drivers.weather import Question, serve


def ask(question: Question) -> str:
    prompt = question["prompt"]
    match question["way"]:
        case "chat":
            client = OpenAI(base_url=question["url"], api_key="any")
            with client.chat.completions.stream(model="auto", messages=[{"role": "user", "content": prompt}]) as stream:
                return stream.get_final_completion().choices[0].message.content or ""
        case "responses":
            client = OpenAI(base_url=question["url"], api_key="any")
            return client.responses.create(model="auto", input=prompt).output_text
        case _:
            anthropic = Anthropic(base_url=question["url"].removesuffix("/v1"), api_key="any")
            with anthropic.messages.stream(
                model="auto", max_tokens=4096, messages=[{"role": "user", "content": prompt}]
            ) as answer:
                return str(answer.get_final_text())


if __name__ == "__main__":
    serve(ask)
