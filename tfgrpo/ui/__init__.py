"""The pages that `tfgrpo ui` shows in a browser: server-rendered, on the functions of the terminal.

A page is one module in `pages/` and one template of the same name in `templates/`; the list of
them is in `pages/__init__.py`. A page's handlers take a `Visit` and return its response. They run
in a few threads, each with a store of its own, so a handler reads and writes a store as a command
does. What a page and a command both show is computed below both (`tfgrpo.display`).

Nothing is fetched from elsewhere: scripts and styles are files in `static/`, and the
Content-Security-Policy allows those alone.
"""
