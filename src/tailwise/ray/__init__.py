"""More than one process or machine: Ray sessions, predictions of whole pools, experiments on a cluster."""
