"""Our Java classes for Spark, as source, and the search for the Java that Spark runs on."""
