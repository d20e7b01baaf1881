"""Other programs' files. Each `Format` that a file here defines can be read or written."""
