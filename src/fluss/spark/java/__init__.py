"""Our Java classes for Spark, as sources that Spark compiles, and the Java that Spark runs on."""
