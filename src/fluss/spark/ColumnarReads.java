package flusspy.spark;

import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.TimeStampMicroVector;
import org.apache.arrow.vector.ValueVector;
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
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Batch reads that hand the Arrow batches of the Python reader to Spark as they are.
 *
 * Spark itself turns what Python sources give into rows, and those into rows again, before a query sees a value. Here its
 * generated code takes the values from Arrow's memory, and only those that the query uses.
 */
public class ColumnarReads {
    /** A scan of the Python source whose batches stay columns; streams are read as Spark does it. */
    public static class ColumnarScan extends PythonScan {
        private boolean streams = false;

        ColumnarScan(
                PythonDataSourceV2 source, String name, StructType columns, CaseInsensitiveStringMap options, Filter[] filters) {
            super(source, name, columns, options, filters);
        }

        public Batch toBatch() {
            return new PlannedBatch(super.toBatch());
        }

        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            streams = true;
            return super.toMicroBatchStream(checkpoint);
        }

        public Scan.ColumnarSupportMode columnarSupportMode() {
            return streams ? Scan.ColumnarSupportMode.UNSUPPORTED : Scan.ColumnarSupportMode.SUPPORTED;
        }
    }

    /** The tasks that the Python reader planned. */
    public static class PlannedBatch implements Batch {
        private final Batch planned;

        PlannedBatch(Batch planned) {
            this.planned = planned;
        }

        public InputPartition[] planInputPartitions() {
            return planned.planInputPartitions();
        }

        public PartitionReaderFactory createReaderFactory() {
            return new ColumnarReaderFactory((PythonPartitionReaderFactory) planned.createReaderFactory());
        }
    }

    /** Goes to the executors with what Spark would have sent there. */
    public static class ColumnarReaderFactory implements PartitionReaderFactory {
        private final PythonPartitionReaderFactory python;

        ColumnarReaderFactory(PythonPartitionReaderFactory python) {
            this.python = python;
        }

        public PartitionReader createReader(InputPartition partition) {
            return python.createReader(partition);
        }

        public boolean supportColumnarReads(InputPartition partition) {
            return true;
        }

        public PartitionReader createColumnarReader(InputPartition partition) {
            return new ColumnarReader(python, (PythonInputPartition) partition);
        }
    }

    /** The batches of one task, from the Python process that Spark starts or keeps for it. */
    public static class ColumnarReader implements PartitionReader {
        private final UserDefinedPythonDataSource source;
        private final StructType columns;
        private final scala.collection.immutable.Map metrics = PythonCustomMetric.pythonMetrics();
        private final scala.collection.Iterator batches;

        ColumnarReader(PythonPartitionReaderFactory python, PythonInputPartition partition) {
            source = python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$source;
            columns = python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$outputSchema;
            MapInBatchEvaluatorFactory factory = source.createMapInBatchEvaluatorFactory(
                python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$pickledReadFunc,
                "read_from_data_source",
                UserDefinedPythonDataSource.readInputSchema(),
                columns,
                metrics,
                python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$jobArtifactUUID,
                python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$sessionUUID);
            InternalRow task = new GenericInternalRow(new Object[] {partition.pickedPartition()});
            batches = ArrowWrites.run(factory, ArrowWrites.one(task));
        }

        public boolean next() {
            return batches.hasNext();
        }

        public Object get() {
            ColumnarBatch batch = (ColumnarBatch) batches.next();
            ArrowColumnVector rows = (ArrowColumnVector) batch.column(0);
            ColumnVector[] vectors = new ColumnVector[columns.length()];
            for (int i = 0; i < vectors.length; i++) {
                vectors[i] = direct(rows.getChild(i), columns.fields()[i].dataType());
            }
            return new ColumnarBatch(vectors, batch.numRows());
        }

        /** Only where Python gave what Spark expects: other memory would be read by its addresses otherwise. */
        private static ColumnVector direct(ArrowColumnVector column, DataType expected) {
            ValueVector vector = column.getValueVector();
            boolean simple = vector instanceof BigIntVector
                || vector instanceof IntVector
                || vector instanceof Float8Vector
                || vector instanceof Float4Vector
                || vector instanceof DateDayVector
                || vector instanceof TimeStampMicroVector
                || vector instanceof TimeStampMicroTZVector
                || vector instanceof VarCharVector;
            simple = simple && vector.getValueCount() > 0 && column.dataType().equals(expected);
            return simple ? new DirectVector((FieldVector) vector) : column;
        }

        public CustomTaskMetric[] currentMetricsValues() {
            return ArrowWrites.values(source, metrics);
        }

        public void close() {
        }
    }

    /** Common types by their addresses: Spark's class asks three objects on the way to a value, and checks bounds. */
    public static class DirectVector extends ArrowColumnVector {
        private final long validity;
        private final long values;
        private final long offsets;

        DirectVector(FieldVector vector) {
            super(vector);
            validity = vector.getNullCount() == 0 ? 0 : vector.getValidityBufferAddress();
            values = vector.getDataBufferAddress();
            offsets = vector instanceof VarCharVector ? vector.getOffsetBufferAddress() : 0;
        }

        public boolean isNullAt(int row) {
            return validity != 0 && (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0;
        }

        public int getInt(int row) {
            return Platform.getInt(null, values + 4L * row);
        }

        public long getLong(int row) {
            return Platform.getLong(null, values + 8L * row);
        }

        public float getFloat(int row) {
            return Platform.getFloat(null, values + 4L * row);
        }

        public double getDouble(int row) {
            return Platform.getDouble(null, values + 8L * row);
        }

        public UTF8String getUTF8String(int row) {
            if (isNullAt(row)) {
                return null;
            }
            int start = Platform.getInt(null, offsets + 4L * row);
            return UTF8String.fromAddress(null, values + start, Platform.getInt(null, offsets + 4L * row + 4) - start);
        }
    }
}
