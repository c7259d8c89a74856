"""The page of the report: template, style and scripts; `report.render` makes one file of them."""
