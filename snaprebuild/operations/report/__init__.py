"""What ``report`` is made of: documents of other verbs as they are read, what a page shows of them, and the page."""
