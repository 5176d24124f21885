"""The commands ``scan``, ``plan``, ``rebuild`` and ``verify`` as functions, for programs and notebooks."""
