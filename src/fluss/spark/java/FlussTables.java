package flusspy.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.PartitionsAlreadyExistException;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsPartitionManagement;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The tables of a catalog; reads and writes are those of the Python source. */
public class FlussTables {
    private FlussTables() {
    }

    /** A table that a catalog has loaded. */
    public static class FlussTable implements Table, SupportsRead, SupportsWrite {
        final PythonCalls python;
        final String path;
        final StructType schema;
        final Map<String, String> properties;
        final String[] partitionColumns;

        FlussTable(
                PythonCalls python,
                String path,
                StructType schema,
                Map<String, String> properties,
                String[] partitionColumns) {
            this.python = python;
            this.path = path;
            this.schema = schema;
            this.properties = properties;
            this.partitionColumns = partitionColumns;
        }

        public String name() {
            return python.catalogName() + "." + path;
        }

        @SuppressWarnings("deprecation") // the default of columns() calls this one
        public StructType schema() {
            return schema;
        }

        public Map<String, String> properties() {
            return properties;
        }

        public Transform[] partitioning() {
            Transform[] transforms = new Transform[partitionColumns.length];
            for (int i = 0; i < transforms.length; i++) {
                transforms[i] = Expressions.identity(partitionColumns[i]);
            }
            return transforms;
        }

        public Set<TableCapability> capabilities() {
            return new PythonTable(FlussSource.newSource(), FlussSource.FORMAT, schema).capabilities();
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            String mode = options.get("mode");
            if (mode != null && !mode.equalsIgnoreCase("state")) {
                throw new UnsupportedOperationException("option mode=" + mode + " would change the columns of " + name()
                    + ", which are already fixed: read `" + path + "$" + mode + "`, or use format('fluss')");
            }
            if (options.containsKey("columns")) {
                throw new UnsupportedOperationException(
                    "option columns cannot be used with table " + name() + " of a catalog: select the columns");
            }
            return new FlussSource.PruningScanBuilder(schema, python.options(options, path));
        }

        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            CaseInsensitiveStringMap options = python.options(info.options(), path);
            return new ArrowWrites.Builder(
                FlussSource.newSource(), FlussSource.FORMAT, new FlussSource.WriteInfo(info, options));
        }
    }

    /**
     * A table whose partitions can be listed, added and dropped; Spark refuses these statements for other tables.
     *
     * Servers create and drop one partition at a time. So this is not Spark's interface for several partitions, which
     * promises all or nothing, and Spark refuses statements with several.
     */
    public static class PartitionedTable extends FlussTable implements SupportsPartitionManagement {
        PartitionedTable(
                PythonCalls python,
                String path,
                StructType schema,
                Map<String, String> properties,
                String[] partitionColumns) {
            super(python, path, schema, properties, partitionColumns);
        }

        public StructType partitionSchema() {
            StructType columns = new StructType();
            for (int i = 0; i < partitionColumns.length; i++) {
                columns = columns.add(schema.fields()[schema.fieldIndex(partitionColumns[i])]);
            }
            return columns;
        }

        public InternalRow[] listPartitionIdentifiers(String[] names, InternalRow values) {
            StructType columns = partitionSchema();
            List<?> found = (List<?>) python.ask("list_partitions", partitionRequest(names, values)).result();
            InternalRow[] rows = new InternalRow[found.size()];
            for (int i = 0; i < rows.length; i++) {
                rows[i] = PartitionValues.fromJson(columns, (List<?>) found.get(i));
            }
            return rows;
        }

        public void createPartition(InternalRow values, Map<String, String> properties)
                throws PartitionsAlreadyExistException {
            if (!properties.isEmpty()) {
                throw new UnsupportedOperationException(
                    "partitions have no properties and no location of their own: leave out "
                    + String.join(", ", properties.keySet()));
            }
            StructType columns = partitionSchema();
            PythonCalls.Answer answer = python.ask("create_partition", partitionRequest(columns.fieldNames(), values));
            if (answer.code() == PythonCalls.PARTITION_ALREADY_EXISTS) {
                throw new PartitionsAlreadyExistException(name(), values, columns);
            }
            answer.result();
        }

        /** True if the partition existed: Spark looks before, and reports a missing one to the user. */
        public boolean dropPartition(InternalRow values) {
            Map<String, Object> request = partitionRequest(partitionSchema().fieldNames(), values);
            PythonCalls.Answer answer = python.ask("drop_partition", request);
            if (answer.code() == PythonCalls.PARTITION_NOT_EXISTS) {
                return false;
            }
            answer.result();
            return true;
        }

        private Map<String, Object> partitionRequest(String[] names, InternalRow values) {
            Map<String, Object> request = PythonCalls.request("table", path);
            request.put("values", PartitionValues.toJson(partitionSchema(), names, values));
            return request;
        }

        public boolean purgePartition(InternalRow values) {
            throw new UnsupportedOperationException("there is no trash for dropped partitions: leave PURGE out");
        }

        public boolean truncatePartition(InternalRow values) {
            throw new UnsupportedOperationException("partitions cannot be truncated: drop the partition and add it again");
        }

        public boolean renamePartition(InternalRow from, InternalRow to) {
            throw new UnsupportedOperationException(
                "partitions cannot be renamed: their rows have the old values, and rows are not rewritten");
        }

        public void replacePartitionMetadata(InternalRow values, Map<String, String> properties) {
            throw new UnsupportedOperationException("partitions have no properties");
        }

        /** Empty; statements that describe a partition ask for it. */
        public Map<String, String> loadPartitionMetadata(InternalRow values) {
            return new HashMap<String, String>();
        }
    }

    /** A table that was created by a statement that also writes its first rows. */
    public static class NewTable extends FlussTable implements StagedTable {
        NewTable(FlussTable created) {
            super(created.python, created.path, created.schema, created.properties, created.partitionColumns);
        }

        /** Spark asks to truncate the table, which is empty. */
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            CaseInsensitiveStringMap options = python.options(info.options(), path);
            return new ArrowWrites.Builder(
                FlussSource.newSource(), FlussSource.FORMAT, new FlussSource.WriteInfo(info, options)) {
                public WriteBuilder truncate() {
                    return this;
                }
            };
        }

        public void commitStagedChanges() {
        }

        public void abortStagedChanges() {
            python.dropTable(path);
        }
    }
}
