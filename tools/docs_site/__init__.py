"""The pages in docs/ and the project's own in; a website that works from the file system out."""
