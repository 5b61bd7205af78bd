"""How answers are shown: pages, tables, plots and the pager."""
