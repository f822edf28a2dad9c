"""Pure stages: items are pushed, and other items come out."""
