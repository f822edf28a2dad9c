"""A chat in the terminal. An empty line ends it."""

from cursor_gateway import Client

conversation = None
with Client() as client:
    while message := input("> "):
        with client.stream(message, conversation_id=conversation) as stream:
            for text in stream.text:
                print(text, end="", flush=True)
        print()
        conversation = stream.conversation_id
