"""The files of a workspace: found, remembered as they were, compared and restored. Git is started only to commit."""
