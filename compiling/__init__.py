"""Builds the compiled form: the modules that every request passes, as C extensions (docs/compiling.md).

`python -m compiling` builds them for the interpreter that runs it and lets its environment use them. The hook
of wheels, hatch_build.py, calls the same functions. A cache in the user's home has the results.
"""
