package flusspy.spark;

import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;

import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVectorHelper;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.TimeStampMicroVector;
import org.apache.arrow.vector.VarCharVector;
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
import org.apache.spark.sql.execution.arrow.ArrowFieldWriter;
import org.apache.spark.sql.execution.arrow.ArrowWriter$;
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
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.AccumulatorV2;

/**
 * Writes whose rows become Arrow batches by plain stores into Arrow's memory.
 *
 * Spark's own way to Python sources asks Arrow before every value whether there is room for it, and after every row how
 * large the batch is by now, which is most of what handing a row to Python costs. Here a batch has room for its rows from
 * the beginning, texts grow by doubling, and a row is as large as Spark says.
 */
public class ArrowWrites {
    static scala.collection.Iterator one(Object item) {
        return scala.collection.Iterator$.MODULE$.single(item);
    }

    /** What Spark's reports show of a Python process. */
    static CustomTaskMetric[] values(UserDefinedPythonDataSource source, scala.collection.immutable.Map metrics) {
        scala.collection.mutable.ListBuffer values = new scala.collection.mutable.ListBuffer();
        scala.collection.Iterator entries = metrics.iterator();
        while (entries.hasNext()) {
            scala.Tuple2 entry = (scala.Tuple2) entries.next();
            values.append(new scala.Tuple2(entry._1(), ((AccumulatorV2) entry._2()).value()));
        }
        return source.createPythonTaskMetrics(scala.collection.immutable.Map$.MODULE$.from(values));
    }

    /** Have Python take rows and give batches, which may come while rows still go. */
    static scala.collection.Iterator run(MapInBatchEvaluatorFactory factory, scala.collection.Iterator rows) {
        TaskContext context = TaskContext.get();
        return new DirectRunner(factory).compute(one(rows), context.partitionId(), context);
    }

    /** A write of the Python source, in batches and in streams. */
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

    /** What Spark plans for Python sources, with other writers for the tasks. */
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

    /** One batch write. */
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
            return new DirectStreamingWriterFactory((PythonBatchWriterFactory) super.createStreamingWriterFactory(physical));
        }
    }

    /** Goes to the executors. */
    public static class DirectWriterFactory extends PythonBatchWriterFactory {
        DirectWriterFactory(PythonBatchWriterFactory python) {
            super(
                python.source(), python.pickledWriteFunc(), python.inputSchema(), python.jobArtifactUUID(), python.sessionUUID());
        }

        public DataWriter createWriter(int partition, long task) {
            return new DirectWriter(this);
        }
    }

    /** Goes to the executors with every micro-batch. */
    public static class DirectStreamingWriterFactory extends PythonStreamingWriterFactory {
        DirectStreamingWriterFactory(PythonBatchWriterFactory python) {
            super(
                python.source(), python.pickledWriteFunc(), python.inputSchema(), python.jobArtifactUUID(), python.sessionUUID());
        }

        public DataWriter createWriter(int partition, long task) {
            return new DirectWriter(this);
        }
    }

    /** The rows of one task go to Python, one message comes back. */
    public static class DirectWriter implements DataWriter {
        private final PythonBatchWriterFactory python;
        private final scala.collection.immutable.Map metrics = PythonCustomMetric.pythonMetrics();
        private PythonWriterCommitMessage message = null;

        DirectWriter(PythonBatchWriterFactory python) {
            this.python = python;
        }

        public void writeAll(java.util.Iterator rows) {
            MapInBatchEvaluatorFactory factory = python.source().createMapInBatchEvaluatorFactory(
                python.pickledWriteFunc(),
                "write_to_data_source",
                python.inputSchema(),
                UserDefinedPythonDataSource.writeOutputSchema(),
                metrics,
                python.jobArtifactUUID(),
                python.sessionUUID());
            scala.collection.Iterator output = run(factory, scala.jdk.javaapi.CollectionConverters.asScala(rows));
            while (output.hasNext()) {
                ColumnarBatch batch = (ColumnarBatch) output.next();
                ArrowColumnVector messages = ((ArrowColumnVector) batch.column(0)).getChild(0);
                for (int i = 0; i < batch.numRows(); i++) {
                    if (message != null) {
                        throw new IllegalStateException("the Python writer gave more than one commit message");
                    }
                    message = new PythonWriterCommitMessage(messages.getBinary(i));
                }
            }
            if (message == null) {
                throw new IllegalStateException("the Python writer gave no commit message");
            }
        }

        public void write(Object row) {
            throw new IllegalStateException("rows are written all at once");
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

    /** Spark's connection to the Python process of a task, with batches made here. */
    public static class DirectRunner extends ArrowPythonRunner {
        private static final int MAX_ROWS = 8192;
        private static final long MAX_BYTES = 8L << 20;
        /** For rows of other kinds than Spark's usual one, which knows its size. */
        private static final int OTHER_ROW_BYTES = 4096;

        private scala.collection.Iterator rows = null;
        private Column[] columns = null;

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
                VectorSchemaRoot root, ArrowStreamWriter writer, DataOutputStream out, scala.collection.Iterator input) {
            if (rows == null) {
                rows = (scala.collection.Iterator) input.next();
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
            ((SQLMetric) pythonMetrics().apply("pythonDataSent")).$plus$eq((long) (out.size() - before));
            for (int i = 0; i < columns.length; i++) {
                columns[i].reset();
            }
            return true;
        }

        private void prepare(StructVector struct) {
            struct.setInitialCapacity(MAX_ROWS);
            struct.allocateNew();
            Platform.setMemory(struct.getValidityBufferAddress(), (byte) 0xff, MAX_ROWS / 8);
            Column[] made = new Column[struct.size()];
            for (int i = 0; i < made.length; i++) {
                made[i] = column((FieldVector) struct.getChildByOrdinal(i), i);
            }
            columns = made;
        }

        private static Column column(FieldVector vector, int index) {
            boolean micros = vector instanceof TimeStampMicroVector || vector instanceof TimeStampMicroTZVector;
            if (vector instanceof BigIntVector || micros) {
                return new Longs((BaseFixedWidthVector) vector, index);
            }
            if (vector instanceof IntVector || vector instanceof DateDayVector) {
                return new Ints((BaseFixedWidthVector) vector, index);
            }
            if (vector instanceof Float8Vector) {
                return new Doubles((BaseFixedWidthVector) vector, index);
            }
            if (vector instanceof Float4Vector) {
                return new Floats((BaseFixedWidthVector) vector, index);
            }
            if (vector instanceof VarCharVector) {
                return new Texts((VarCharVector) vector, index);
            }
            return new Others(ArrowWriter$.MODULE$.createFieldWriter(vector), index);
        }

        /** At least one row; as many as there are up to the bounds. */
        private int fill() {
            long left = Math.min(MAX_BYTES, maxBytesPerBatch());
            int limit = Math.min(MAX_ROWS, maxRecordsPerBatch());
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

    /** The values of one column on their way into a batch. */
    abstract static class Column {
        final int index;

        Column(int index) {
            this.index = index;
        }

        abstract void add(InternalRow row, int at);

        abstract void finish(int count);

        abstract void reset();
    }

    /** Columns whose validity is written here: all values are there until one is not. */
    abstract static class Direct extends Column {
        final FieldVector vector;
        boolean nulls = true;

        Direct(FieldVector vector, int index) {
            super(index);
            this.vector = vector;
        }

        void setNull(int at) {
            nulls = true;
            BitVectorHelper.unsetBit(vector.getValidityBuffer(), at);
        }

        void reset() {
            if (nulls) {
                Platform.setMemory(vector.getValidityBufferAddress(), (byte) 0xff, DirectRunner.MAX_ROWS / 8);
                nulls = false;
            }
        }
    }

    /** Numbers and points in time, all of a width. */
    abstract static class Fixed extends Direct {
        final long values;

        Fixed(BaseFixedWidthVector vector, int index) {
            super(vector, index);
            vector.allocateNew(DirectRunner.MAX_ROWS);
            values = vector.getDataBufferAddress();
            reset();
        }

        void add(InternalRow row, int at) {
            if (row.isNullAt(index)) {
                setNull(at);
            } else {
                put(row, at);
            }
        }

        abstract void put(InternalRow row, int at);

        void finish(int count) {
            vector.setValueCount(count);
        }
    }

    /** 64-bit numbers, and microseconds since 1970. */
    static class Longs extends Fixed {
        Longs(BaseFixedWidthVector vector, int index) {
            super(vector, index);
        }

        void put(InternalRow row, int at) {
            Platform.putLong(null, values + 8L * at, row.getLong(index));
        }
    }

    /** 32-bit numbers, and days since 1970. */
    static class Ints extends Fixed {
        Ints(BaseFixedWidthVector vector, int index) {
            super(vector, index);
        }

        void put(InternalRow row, int at) {
            Platform.putInt(null, values + 4L * at, row.getInt(index));
        }
    }

    /** Floating numbers of 64 bits. */
    static class Doubles extends Fixed {
        Doubles(BaseFixedWidthVector vector, int index) {
            super(vector, index);
        }

        void put(InternalRow row, int at) {
            Platform.putDouble(null, values + 8L * at, row.getDouble(index));
        }
    }

    /** Floating numbers of 32 bits. */
    static class Floats extends Fixed {
        Floats(BaseFixedWidthVector vector, int index) {
            super(vector, index);
        }

        void put(InternalRow row, int at) {
            Platform.putFloat(null, values + 4L * at, row.getFloat(index));
        }
    }

    /** Texts, one after the other. */
    static class Texts extends Direct {
        private static final long FIRST_BYTES = 16L * DirectRunner.MAX_ROWS;

        private final VarCharVector texts;
        private final long offsets;
        private long bytes;
        private long capacity;
        private int end = 0;

        Texts(VarCharVector vector, int index) {
            super(vector, index);
            texts = vector;
            vector.allocateNew(FIRST_BYTES, DirectRunner.MAX_ROWS);
            offsets = vector.getOffsetBufferAddress();
            locate();
            reset();
        }

        private void locate() {
            bytes = texts.getDataBufferAddress();
            capacity = texts.getDataBuffer().capacity();
        }

        void add(InternalRow row, int at) {
            if (row.isNullAt(index)) {
                setNull(at);
            } else {
                UTF8String text = row.getUTF8String(index);
                int length = text.numBytes();
                if (capacity - end < length) {
                    texts.reallocDataBuffer(Math.max(2 * capacity, (long) end + length));
                    locate();
                }
                text.writeToMemory(null, bytes + end);
                end += length;
            }
            Platform.putInt(null, offsets + 4L * at + 4, end);
        }

        void finish(int count) {
            texts.setLastSet(count - 1);
            texts.setValueCount(count);
        }

        void reset() {
            super.reset();
            end = 0;
        }
    }

    /** Everything else as Spark does it. */
    static class Others extends Column {
        private final ArrowFieldWriter writer;

        Others(ArrowFieldWriter writer, int index) {
            super(index);
            this.writer = writer;
        }

        void add(InternalRow row, int at) {
            writer.write(row, index);
        }

        void finish(int count) {
            writer.finish();
        }

        void reset() {
            writer.reset();
        }
    }
}
