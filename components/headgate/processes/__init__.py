"""The six processes, each a pure decide.py and a loop, and what their loops share."""
