"""Reports: HTML files with plots and tables, which can be viewed without a network."""
