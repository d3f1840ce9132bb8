"""Our Java classes for Spark, as sources that Spark compiles, and the search for the Java that Spark runs on."""
