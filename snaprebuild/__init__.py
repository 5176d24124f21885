"""Producer-snapshot recovery for Apache Kafka log directories.

``snaprebuild.replay`` is what a log says about its producers, ``snaprebuild.storage`` is bytes at rest,
``snaprebuild.operations`` has one module for each verb, ``snaprebuild.cli`` prints them.
"""

__version__ = "0.1.0"
