"""The part of CommonMark that is needed to find fences."""
