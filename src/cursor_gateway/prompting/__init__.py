"""Messages in; one prompt out."""
