"""How an agent's speech reaches us: each source turns its agent's own words into agent events."""
