"""Models that run on this machine, without a key and without a network once fetched.

`registry` says which models there are, `cache` where their files lie, `fetch`
brings one here and checks it, `serve` runs it behind an OpenAI-compatible address
on loopback. Nothing here prints; importing it loads neither engine nor network.
"""
