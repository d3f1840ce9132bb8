package flusspy.spark;

import java.util.Arrays;

import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.TimeStampMicroVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatch;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Batch reads that pass the Arrow batches of the Python reader to Spark as columns.
 *
 * Spark converts the batches of Python sources to rows twice before a query sees a value. Here the query's generated code
 * reads values from Arrow's memory, and only those that the query uses. Batches that Python does not need to look into
 * arrive as the server stores them, and are decompressed here (StoredBatches).
 */
public class ColumnarReads {
    private ColumnarReads() {
    }

    /** Append the column for stored messages: a whole message in a batch of one row, null in other batches. */
    static StructType withMessages(StructType columns) {
        String name = "__stored_batch";
        while (Arrays.asList(columns.fieldNames()).contains(name)) {
            name += "_";
        }
        return columns.add(name, DataTypes.BinaryType);
    }

    /** A scan of the Python source whose batches stay columnar; streams are read by Spark's own classes. */
    public static class ColumnarScan extends PythonScan {
        private final PythonDataSourceV2 source;
        private final String name;
        private final StructType columns;
        private final CaseInsensitiveStringMap options;
        private boolean streams = false;

        ColumnarScan(
                PythonDataSourceV2 source,
                String name,
                StructType columns,
                CaseInsensitiveStringMap options,
                Filter[] filters) {
            super(source, name, columns, options, filters);
            this.source = source;
            this.name = name;
            this.columns = columns;
            this.options = options;
        }

        public Batch toBatch() {
            String table = options.containsKey("table") ? options.get("table") : options.get("path");
            return new PlannedBatch(new PythonBatch(source, name, withMessages(columns), options), table, columns);
        }

        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            streams = true;
            return super.toMicroBatchStream(checkpoint);
        }

        public Scan.ColumnarSupportMode columnarSupportMode() {
            return streams ? Scan.ColumnarSupportMode.UNSUPPORTED : Scan.ColumnarSupportMode.SUPPORTED;
        }
    }

    /** The tasks that the Python reader has planned. */
    public static class PlannedBatch implements Batch {
        private final Batch planned;
        private final String table;
        private final StructType columns;

        PlannedBatch(Batch planned, String table, StructType columns) {
            this.planned = planned;
            this.table = table;
            this.columns = columns;
        }

        public InputPartition[] planInputPartitions() {
            return planned.planInputPartitions();
        }

        public PartitionReaderFactory createReaderFactory() {
            return new ColumnarReaderFactory((PythonPartitionReaderFactory) planned.createReaderFactory(), table, columns);
        }
    }

    /** Makes the readers of the tasks; sent to the executors with Spark's own factory, whose fields it uses. */
    public static class ColumnarReaderFactory implements PartitionReaderFactory {
        private static final long serialVersionUID = 1L;

        private final PythonPartitionReaderFactory python;
        private final String table;
        private final StructType columns;

        ColumnarReaderFactory(PythonPartitionReaderFactory python, String table, StructType columns) {
            this.python = python;
            this.table = table;
            this.columns = columns;
        }

        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            throw new UnsupportedOperationException("this read has no row reader: its batches are columnar");
        }

        public boolean supportColumnarReads(InputPartition partition) {
            return true;
        }

        public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
            return new ColumnarReader(python, table, columns, (PythonInputPartition) partition);
        }
    }

    /** The batches of one task, from the Python process that Spark starts or reuses for it. */
    public static class ColumnarReader implements PartitionReader<ColumnarBatch> {
        private final UserDefinedPythonDataSource source;
        private final StructType columns;
        private final scala.collection.immutable.Map<String, SQLMetric> metrics = PythonCustomMetric.pythonMetrics();
        private final scala.collection.Iterator<?> batches;
        private final StoredBatches stored;

        ColumnarReader(
                PythonPartitionReaderFactory python, String table, StructType columns, PythonInputPartition partition) {
            this.columns = columns;
            stored = new StoredBatches(table, columns);
            source = python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$source;
            MapInBatchEvaluatorFactory factory = source.createMapInBatchEvaluatorFactory(
                python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$pickledReadFunc,
                "read_from_data_source",
                UserDefinedPythonDataSource.readInputSchema(),
                withMessages(columns),
                metrics,
                python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$jobArtifactUUID,
                python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$sessionUUID);
            InternalRow task = new GenericInternalRow(new Object[] {partition.pickedPartition()});
            batches = ArrowWrites.run(factory, ArrowWrites.one(task));
        }

        public boolean next() {
            return batches.hasNext();
        }

        public ColumnarBatch get() {
            ColumnarBatch batch = (ColumnarBatch) batches.next();
            ArrowColumnVector rows = (ArrowColumnVector) batch.column(0);
            ValueVector messages = rows.getChild(columns.length()).getValueVector();
            if (batch.numRows() > 0 && !messages.isNull(0)) {
                return stored.read((VarBinaryVector) messages);
            }
            ColumnVector[] vectors = new ColumnVector[columns.length()];
            for (int i = 0; i < vectors.length; i++) {
                vectors[i] = direct(rows.getChild(i), columns.fields()[i].dataType());
            }
            return new ColumnarBatch(vectors, batch.numRows());
        }

        /** Read by address, but only a vector of the type that Spark expects: the layout of others differs. */
        private static ColumnVector direct(ArrowColumnVector column, DataType expected) {
            FieldVector vector = (FieldVector) column.getValueVector();
            boolean strings = vector instanceof VarCharVector;
            boolean simple = vector instanceof BigIntVector
                || vector instanceof IntVector
                || vector instanceof Float8Vector
                || vector instanceof Float4Vector
                || vector instanceof DateDayVector
                || vector instanceof TimeStampMicroVector
                || vector instanceof TimeStampMicroTZVector
                || strings;
            if (!simple || vector.getValueCount() == 0 || !column.dataType().equals(expected)) {
                return new WrappedVector(column, expected);
            }
            int nulls = vector.getNullCount();
            long validity = nulls == 0 ? 0 : vector.getValidityBufferAddress();
            long offsets = strings ? vector.getOffsetBufferAddress() : 0;
            return new StoredBatches.DirectVector(expected, nulls, validity, vector.getDataBufferAddress(), offsets);
        }

        public CustomTaskMetric[] currentMetricsValues() {
            return ArrowWrites.values(source, metrics);
        }

        public void close() {
            stored.close();
        }
    }

    /**
     * A column that Spark's ArrowColumnVector reads.
     *
     * For pandas UDFs, Spark queues batches whose first column is an ArrowColumnVector, and reads them long after the next
     * batch has reused their memory. It converts batches of other columns to rows at once.
     */
    public static class WrappedVector extends ColumnVector {
        private final ArrowColumnVector column;

        WrappedVector(ArrowColumnVector column, DataType type) {
            super(type);
            this.column = column;
        }

        /** Nothing to free: the reader owns the memory. */
        public void close() {
        }

        public boolean hasNull() {
            return column.hasNull();
        }

        public int numNulls() {
            return column.numNulls();
        }

        public boolean isNullAt(int row) {
            return column.isNullAt(row);
        }

        public boolean getBoolean(int row) {
            return column.getBoolean(row);
        }

        public byte getByte(int row) {
            return column.getByte(row);
        }

        public short getShort(int row) {
            return column.getShort(row);
        }

        public int getInt(int row) {
            return column.getInt(row);
        }

        public long getLong(int row) {
            return column.getLong(row);
        }

        public float getFloat(int row) {
            return column.getFloat(row);
        }

        public double getDouble(int row) {
            return column.getDouble(row);
        }

        public Decimal getDecimal(int row, int precision, int scale) {
            return column.getDecimal(row, precision, scale);
        }

        public UTF8String getUTF8String(int row) {
            return column.getUTF8String(row);
        }

        public byte[] getBinary(int row) {
            return column.getBinary(row);
        }

        public ColumnarArray getArray(int row) {
            return column.getArray(row);
        }

        public ColumnarMap getMap(int row) {
            return column.getMap(row);
        }

        public ColumnVector getChild(int ordinal) {
            return column.getChild(ordinal);
        }
    }
}
