"""How mathematical answers are found in a response, read and compared."""
