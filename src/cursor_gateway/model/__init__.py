"""What is said: the closed unions and the shapes that every layer shares."""
