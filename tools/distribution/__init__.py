"""A commit in; its packages, tried and described, out."""
