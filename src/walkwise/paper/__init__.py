"""The tables and figures of the paper, each in a module of its own: rows, a picture and a verdict.

``walkwise reproduce`` makes them from the command line; from Python it is :func:`walkwise.paper.run.reproduce`.
"""
