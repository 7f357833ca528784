"""From predictions to figures: published rules, sane rules, intervals, tables, comparison.

Needs no model, no video and no dataset.
"""
