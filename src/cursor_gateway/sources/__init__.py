"""Sources: each turns its agent's own protocol into agent events."""
