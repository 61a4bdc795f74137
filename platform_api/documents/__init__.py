"""The API about itself: its description, and a page to read it on."""
