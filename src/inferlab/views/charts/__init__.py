"""Plotly figures out of results, once for files, notebooks and pages; Plotly is imported when one is drawn."""
