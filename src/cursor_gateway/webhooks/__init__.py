"""Tell other services what becomes of runs: messages, stored with what they are about and delivered later."""
