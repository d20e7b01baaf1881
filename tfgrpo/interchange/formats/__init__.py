"""One file a format. Each defines `FORMAT`; a new file here is a new format."""
