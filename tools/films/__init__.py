"""The real programs in; the moving pictures of the README out (docs/images/chat.svg and page.svg)."""
