"""Results as HTML pages that open offline: what pages are made of, and the reports that are more than blocks."""
