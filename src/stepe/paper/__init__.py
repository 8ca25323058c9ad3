"""The paper's experiments: its numbers beside ours, its tables, its figures, and what becomes of its claims."""
