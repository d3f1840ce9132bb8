package flusspy.spark;

import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;

import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.AccumulatorV2;

/**
 * Writes to the Python source that fill Arrow batches faster than Spark does.
 *
 * For every value Spark asks Arrow whether there is room, and after every row how large the batch is; these calls are most
 * of the cost of handing a row to Python. Here a batch has room for its rows from the beginning (ArrowColumns), and the
 * size of a row is the one that Spark reports.
 */
public class ArrowWrites {
    private ArrowWrites() {
    }

    /** An iterator over one item. */
    static <T> scala.collection.Iterator<T> one(T item) {
        return scala.collection.Iterator$.MODULE$.single(item);
    }

    /** The metrics of a Python process, for Spark's reports. */
    static CustomTaskMetric[] values(
            UserDefinedPythonDataSource source, scala.collection.immutable.Map<String, ?> metrics) {
        scala.collection.mutable.ListBuffer<scala.Tuple2<String, Object>> values =
            new scala.collection.mutable.ListBuffer<scala.Tuple2<String, Object>>();
        scala.collection.Iterator<?> entries = metrics.iterator();
        while (entries.hasNext()) {
            scala.Tuple2<?, ?> entry = (scala.Tuple2<?, ?>) entries.next();
            Object value = ((AccumulatorV2<?, ?>) entry._2()).value();
            values.append(new scala.Tuple2<String, Object>((String) entry._1(), value));
        }
        return source.createPythonTaskMetrics(scala.collection.immutable.Map$.MODULE$.from(values));
    }

    /** Send rows to a Python process and return the batches that it sends back; both happen at the same time. */
    static scala.collection.Iterator<?> run(
            MapInBatchEvaluatorFactory factory, scala.collection.Iterator<InternalRow> rows) {
        TaskContext context = TaskContext.get();
        return new DirectRunner(factory).compute(one(rows), context.partitionId(), context);
    }

    /** Plans a batch or streaming write. */
    public static class Builder extends PythonWriteBuilder {
        private final PythonDataSourceV2 source;
        private final String name;
        private final LogicalWriteInfo info;
        private boolean truncates = false;

        Builder(PythonDataSourceV2 source, String name, LogicalWriteInfo info) {
            super(source, name, info);
            this.source = source;
            this.name = name;
            this.info = info;
        }

        public WriteBuilder truncate() {
            truncates = true;
            return this;
        }

        public Write build() {
            return new DirectWrite(source, name, info, truncates);
        }
    }

    /** Spark's write for Python sources, with our writers in the tasks. */
    public static class DirectWrite extends PythonWrite {
        private final PythonDataSourceV2 source;
        private final String name;
        private final LogicalWriteInfo info;
        private final boolean truncates;

        DirectWrite(PythonDataSourceV2 source, String name, LogicalWriteInfo info, boolean truncates) {
            super(source, name, info, truncates);
            this.source = source;
            this.name = name;
            this.info = info;
            this.truncates = truncates;
        }

        public BatchWrite toBatch() {
            return new DirectBatchWrite(source, name, info, truncates);
        }

        public StreamingWrite toStreaming() {
            return new DirectStreamingWrite(source, name, info, truncates);
        }
    }

    /** A batch write. */
    public static class DirectBatchWrite extends PythonBatchWrite {
        DirectBatchWrite(PythonDataSourceV2 source, String name, LogicalWriteInfo info, boolean truncates) {
            super(source, name, info, truncates);
        }

        public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
            return new DirectWriterFactory((PythonBatchWriterFactory) super.createBatchWriterFactory(physical));
        }
    }

    /** The sink of one streaming query. */
    public static class DirectStreamingWrite extends PythonStreamingWrite {
        DirectStreamingWrite(PythonDataSourceV2 source, String name, LogicalWriteInfo info, boolean truncates) {
            super(source, name, info, truncates);
        }

        public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo physical) {
            return new DirectStreamingWriterFactory(
                (PythonBatchWriterFactory) super.createStreamingWriterFactory(physical));
        }
    }

    /** Makes the writers of a batch write; sent to the executors. */
    public static class DirectWriterFactory extends PythonBatchWriterFactory {
        private static final long serialVersionUID = 1L;

        DirectWriterFactory(PythonBatchWriterFactory python) {
            super(
                python.source(),
                python.pickledWriteFunc(),
                python.inputSchema(),
                python.jobArtifactUUID(),
                python.sessionUUID());
        }

        public DataWriter<InternalRow> createWriter(int partition, long task) {
            return new DirectWriter<InternalRow>(this);
        }
    }

    /** Makes the writers of a streaming write; sent to the executors with every micro-batch. */
    public static class DirectStreamingWriterFactory extends PythonStreamingWriterFactory {
        private static final long serialVersionUID = 1L;

        DirectStreamingWriterFactory(PythonBatchWriterFactory python) {
            super(
                python.source(),
                python.pickledWriteFunc(),
                python.inputSchema(),
                python.jobArtifactUUID(),
                python.sessionUUID());
        }

        public DataWriter<InternalRow> createWriter(int partition, long task) {
            return new DirectWriter<InternalRow>(this);
        }
    }

    /**
     * Sends the rows of one task to Python, which returns one commit message.
     *
     * T is always InternalRow. It is a type variable because Janino makes no bridge methods for parameters:
     * write(InternalRow) would not implement write(T).
     */
    public static class DirectWriter<T> implements DataWriter<T> {
        private final PythonBatchWriterFactory python;
        private final scala.collection.immutable.Map<String, SQLMetric> metrics = PythonCustomMetric.pythonMetrics();
        private PythonWriterCommitMessage message = null;

        DirectWriter(PythonBatchWriterFactory python) {
            this.python = python;
        }

        public void writeAll(java.util.Iterator<T> rows) {
            MapInBatchEvaluatorFactory factory = python.source().createMapInBatchEvaluatorFactory(
                python.pickledWriteFunc(),
                "write_to_data_source",
                python.inputSchema(),
                UserDefinedPythonDataSource.writeOutputSchema(),
                metrics,
                python.jobArtifactUUID(),
                python.sessionUUID());
            scala.collection.Iterator<?> output = run(factory, internalRows(rows));
            while (output.hasNext()) {
                ColumnarBatch batch = (ColumnarBatch) output.next();
                ArrowColumnVector messages = ((ArrowColumnVector) batch.column(0)).getChild(0);
                for (int i = 0; i < batch.numRows(); i++) {
                    if (message != null) {
                        throw new IllegalStateException("the Python writer returned more than one commit message");
                    }
                    message = new PythonWriterCommitMessage(messages.getBinary(i));
                }
            }
            if (message == null) {
                throw new IllegalStateException("the Python writer returned no commit message");
            }
        }

        @SuppressWarnings("unchecked") // T is InternalRow
        private static <T> scala.collection.Iterator<InternalRow> internalRows(java.util.Iterator<T> rows) {
            return (scala.collection.Iterator<InternalRow>) scala.jdk.javaapi.CollectionConverters.asScala(rows);
        }

        public void write(T row) {
            throw new IllegalStateException("write of a single row: Spark 4.2 and newer call writeAll");
        }

        public WriterCommitMessage commit() {
            return message;
        }

        public void abort() {
        }

        public void close() {
        }

        public CustomTaskMetric[] currentMetricsValues() {
            return values(python.source(), metrics);
        }
    }

    /** Spark's connection to the Python process of a task, with batches that are filled here. */
    @SuppressWarnings("unchecked") // between Spark's own classes: newWriter has other type arguments in each of them
    public static class DirectRunner extends ArrowPythonRunner {
        private static final long MAX_BYTES = 8L << 20;
        /** Assumed size of a row that is not an UnsafeRow, because only an UnsafeRow knows its size. */
        private static final int OTHER_ROW_BYTES = 4096;

        private scala.collection.Iterator<?> rows = null;
        private ArrowColumns.Column[] columns = null;

        DirectRunner(MapInBatchEvaluatorFactory factory) {
            super(
                factory.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$chainedFunc,
                factory.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonEvalType,
                new int[][] {{0}},
                new StructType().add("struct", factory.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$inputSchema),
                factory.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$sessionLocalTimeZone,
                factory.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$largeVarTypes,
                factory.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonRunnerConf,
                factory.pythonMetrics(),
                factory.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$jobArtifactUUID,
                factory.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$sessionUUID);
        }

        public boolean writeNextBatchToArrowStream(
                VectorSchemaRoot root,
                ArrowStreamWriter writer,
                DataOutputStream out,
                scala.collection.Iterator<scala.collection.Iterator<InternalRow>> input) {
            if (rows == null) {
                scala.collection.Iterator<?> tasks = input;
                rows = (scala.collection.Iterator<?>) tasks.next();
            }
            if (!rows.hasNext()) {
                close();
                return false;
            }
            StructVector struct = (StructVector) root.getVector(0);
            if (columns == null) {
                prepare(struct);
            }
            int count = fill();
            for (int i = 0; i < columns.length; i++) {
                columns[i].finish(count);
            }
            struct.setValueCount(count);
            root.setRowCount(count);
            int before = out.size();
            send(out);
            scala.collection.immutable.Map<String, ?> metrics = pythonMetrics();
            ((SQLMetric) metrics.apply("pythonDataSent")).$plus$eq((long) (out.size() - before));
            for (int i = 0; i < columns.length; i++) {
                columns[i].reset();
            }
            return true;
        }

        private void prepare(StructVector struct) {
            struct.setInitialCapacity(ArrowColumns.MAX_ROWS);
            struct.allocateNew();
            Platform.setMemory(struct.getValidityBufferAddress(), (byte) 0xff, ArrowColumns.MAX_ROWS / 8);
            ArrowColumns.Column[] made = new ArrowColumns.Column[struct.size()];
            for (int i = 0; i < made.length; i++) {
                made[i] = ArrowColumns.column((FieldVector) struct.getChildByOrdinal(i), i);
            }
            columns = made;
        }

        /** Fill the columns with at least one row, and with more up to the limits; return the number of rows. */
        private int fill() {
            long left = Math.min(MAX_BYTES, maxBytesPerBatch());
            int limit = Math.min(ArrowColumns.MAX_ROWS, maxRecordsPerBatch());
            int count = 0;
            do {
                InternalRow row = (InternalRow) rows.next();
                for (int i = 0; i < columns.length; i++) {
                    columns[i].add(row, count);
                }
                count++;
                left -= row instanceof UnsafeRow ? ((UnsafeRow) row).getSizeInBytes() : OTHER_ROW_BYTES;
            } while (count < limit && left > 0 && rows.hasNext());
            return count;
        }

        private void send(DataOutputStream out) {
            ArrowRecordBatch batch = unloader().getRecordBatch();
            try {
                MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch);
            } catch (IOException broken) {
                throw new java.io.UncheckedIOException(broken);
            } finally {
                batch.close();
            }
        }
    }
}
