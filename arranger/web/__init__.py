"""The HTTP API of `arranger serve`: what the reading commands show, as JSON, for programs and for the console.

It only reads. It knows the GET method alone, opens the log for reading only, and passes no name of a file on.
"""
