"""The page in a real browser, against a real gateway with the stand-in agent."""
