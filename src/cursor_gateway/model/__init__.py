"""The data model: the closed unions and shapes that every layer shares."""
