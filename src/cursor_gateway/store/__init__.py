"""The history: conversations, runs and their events, which outlive a restart."""
