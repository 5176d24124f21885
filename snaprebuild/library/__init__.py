"""The commands ``scan``, ``plan``, ``rebuild``, ``verify`` and ``tier audit`` as functions, for programs and notebooks."""
