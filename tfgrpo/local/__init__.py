"""Models that run on this machine, without a key and without a network once fetched."""
