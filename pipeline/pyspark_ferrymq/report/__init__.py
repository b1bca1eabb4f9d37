"""Reports: one HTML file with plots and tables, which needs no network to be looked at."""
