"""The actions, one module each: its request, what it does, and what it says.

The shell imports a module for its request alone: what needs the engine is imported where the action
is performed. :data:`tailrace.control.action_table.TABLE` lists them.
"""
