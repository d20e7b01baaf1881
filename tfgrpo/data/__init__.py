"""Problems: datasets, the readers of their files, and checks for leakage."""
