"""Our Java classes for Spark, as source, and the Java that Spark runs on."""
