"""The one-machine server: coordinator, tablets, storage, and the processes that carry them."""
