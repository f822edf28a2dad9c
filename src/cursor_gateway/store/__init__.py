"""What outlives a request and a restart: conversations, runs and their events, kept and found again."""
