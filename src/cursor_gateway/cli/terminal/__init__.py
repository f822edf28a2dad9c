"""The interactive side of `cursor-gateway chat`: prompts in; what the agent says and asks, out."""
