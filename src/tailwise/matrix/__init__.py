"""Where rows live: arrays, .npy and Parquet files, object stores, sparse top-k, shards; what the solver reads."""
