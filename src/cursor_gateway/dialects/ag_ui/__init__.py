"""The Agent-User Interaction protocol, AG-UI."""
