"""The filters of fetch requests as plain values, which clients and servers bind to the schemas of batches."""
