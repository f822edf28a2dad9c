"""`cursor-agent acp`: agents that stay alive between turns."""
