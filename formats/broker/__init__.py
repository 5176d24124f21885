"""The files of a broker: meta.properties, configuration."""
