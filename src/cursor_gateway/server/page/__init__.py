"""The files of the page at `/`: a shell, a stylesheet and small ES modules, served as they are."""
