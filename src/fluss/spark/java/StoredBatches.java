package flusspy.spark;

import com.github.luben.zstd.Zstd;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.CompressionType;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.vector.VarBinaryVector;

import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Decodes Arrow messages as servers store them, which Python has passed on unread.
 *
 * A message is a record batch without its schema; its buffers are compressed one by one, or none of them is. Values are
 * read by address, so everything that addresses depend on is checked first. The memory for decompressed buffers is reused
 * for the next message: like all batches of a reader, a batch is valid until the next one is read.
 */
public class StoredBatches {
    private static final int PREFIX_BYTES = 8;
    private static final int CONTINUATION = -1;
    /** The length field of a buffer that is stored as it is, because compression would not have made it smaller. */
    private static final long NOT_COMPRESSED = -1;
    private static final int LENGTH_BYTES = 8;
    /** The densest zstd block holds 128 KiB in 4 bytes. */
    private static final long MAX_EXPANSION = 32 * 1024;
    private static final long MAX_BYTES = 1L << 31;

    private final String table;
    private final StructField[] columns;
    private final int bufferCount;
    private final long[] addresses;
    private final long[] lengths;
    /** The size of each compressed buffer after decompression; -1 for a buffer that is not compressed. */
    private final long[] originals;
    private long memory = 0;
    private long capacity = 0;

    /** For messages with these columns; the table name is used in errors. */
    public StoredBatches(String table, StructType columns) {
        this.table = table;
        this.columns = columns.fields();
        int count = 0;
        for (int i = 0; i < this.columns.length; i++) {
            count += isVariable(this.columns[i].dataType()) ? 3 : 2;
        }
        bufferCount = count;
        addresses = new long[count];
        lengths = new long[count];
        originals = new long[count];
    }

    /** Decode the message that is the first value of the vector. */
    public ColumnarBatch read(VarBinaryVector messages) {
        try {
            return decoded(messages);
        } catch (IndexOutOfBoundsException outside) {
            throw broken("its metadata points outside of the message: " + outside.getMessage());
        }
    }

    private ColumnarBatch decoded(VarBinaryVector messages) {
        int start = messages.getOffsetBuffer().getInt(0);
        int size = messages.getOffsetBuffer().getInt(4) - start;
        ByteBuffer bytes = messages.getDataBuffer().nioBuffer(start, size).order(ByteOrder.LITTLE_ENDIAN);
        check(size >= PREFIX_BYTES && bytes.getInt(0) == CONTINUATION, "it does not begin with the prefix of a message");
        int metadataBytes = bytes.getInt(4);
        check(metadataBytes >= 0 && metadataBytes <= size - PREFIX_BYTES, "its metadata is longer than the message");
        bytes.position(PREFIX_BYTES);
        bytes.limit(PREFIX_BYTES + metadataBytes);
        java.nio.Buffer metadata = bytes.slice(); // Janino does not know that this is a ByteBuffer
        Message message = Message.getRootAsMessage(((ByteBuffer) metadata).order(ByteOrder.LITTLE_ENDIAN));
        RecordBatch batch = (RecordBatch) message.header(new RecordBatch());
        check(message.headerType() == MessageHeader.RecordBatch && batch != null, "it is not a record batch");
        check(batch.length() > 0 && batch.length() < Integer.MAX_VALUE, "it has " + batch.length() + " rows");
        check(
            batch.nodesLength() == columns.length && batch.buffersLength() == bufferCount,
            "it has " + batch.nodesLength() + " columns and " + batch.buffersLength() + " buffers, not "
                + columns.length + " and " + bufferCount);
        long body = messages.getDataBuffer().memoryAddress() + start + PREFIX_BYTES + metadataBytes;
        load(batch, body, size - PREFIX_BYTES - metadataBytes);
        return vectors(batch);
    }

    /** Free the memory of decompressed buffers. */
    public void close() {
        Platform.freeMemory(memory);
        memory = 0;
        capacity = 0;
    }

    /** Find the addresses of all buffers, and decompress those that are compressed. */
    private void load(RecordBatch batch, long body, long bodyBytes) {
        boolean compressed = batch.compression() != null;
        check(!compressed || batch.compression().codec() == CompressionType.ZSTD, "its compression is not zstd");
        long needed = 0;
        Buffer buffer = new Buffer();
        for (int i = 0; i < bufferCount; i++) {
            batch.buffers(buffer, i);
            long offset = buffer.offset();
            long length = buffer.length();
            check(offset >= 0 && length >= 0 && offset <= bodyBytes - length, "a buffer lies outside of the message");
            addresses[i] = body + offset;
            lengths[i] = length;
            originals[i] = -1;
            if (compressed && length > 0) {
                check(length >= LENGTH_BYTES, "a compressed buffer is too short for its length field");
                long original = Platform.getLong(null, addresses[i]);
                addresses[i] += LENGTH_BYTES;
                lengths[i] -= LENGTH_BYTES;
                if (original != NOT_COMPRESSED) {
                    boolean possible = original >= 0 && original <= length * MAX_EXPANSION;
                    check(possible, "a compressed buffer has an impossible length");
                    originals[i] = original;
                    needed += aligned(original);
                    check(needed <= MAX_BYTES, "its buffers take more than 2 GB after decompression");
                }
            }
        }
        reserve(needed);
        decompress();
    }

    private void decompress() {
        long free = memory;
        for (int i = 0; i < bufferCount; i++) {
            if (originals[i] >= 0) {
                if (originals[i] > 0) {
                    long got = Zstd.decompressUnsafe(free, originals[i], addresses[i], lengths[i]);
                    check(got == originals[i], "a buffer cannot be decompressed");
                }
                addresses[i] = free;
                lengths[i] = originals[i];
                free += aligned(originals[i]);
            }
        }
    }

    private void reserve(long needed) {
        if (needed > capacity) {
            close();
            memory = Platform.allocateMemory(needed);
            capacity = needed;
        }
    }

    private static long aligned(long length) {
        return (length + 7) & ~7L;
    }

    private ColumnarBatch vectors(RecordBatch batch) {
        int rows = (int) batch.length();
        ColumnVector[] vectors = new ColumnVector[columns.length];
        FieldNode node = new FieldNode();
        int at = 0;
        for (int i = 0; i < columns.length; i++) {
            DataType type = columns[i].dataType();
            batch.nodes(node, i);
            long nulls = node.nullCount();
            check(node.length() == rows, "a column has another number of rows");
            check(nulls >= 0 && nulls <= rows, "a column has an impossible number of nulls");
            check(nulls == 0 || lengths[at] >= (rows + 7L) / 8, "the null bits of a column are too short");
            if (nulls > 0 && !columns[i].nullable()) {
                String column = "column '" + columns[i].name() + "' of table " + table;
                throw new IllegalStateException(column + " is NOT NULL, but " + nulls + " of " + rows + " values are null");
            }
            long validity = nulls == 0 ? 0 : addresses[at];
            if (isVariable(type)) {
                boolean fit = areOffsets(addresses[at + 1], lengths[at + 1], rows, lengths[at + 2]);
                check(fit, "the offsets of a column are not ascending or lead outside of its values");
                vectors[i] = new DirectVector(type, (int) nulls, validity, addresses[at + 2], addresses[at + 1]);
                at += 3;
            } else {
                long bits = type instanceof BooleanType ? 1 : 8L * width(type);
                check(lengths[at + 1] >= (rows * bits + 7) / 8, "the values of a column are too short");
                vectors[i] = new DirectVector(type, (int) nulls, validity, addresses[at + 1], 0);
                at += 2;
            }
        }
        return new ColumnarBatch(vectors, rows);
    }

    /** True if `rows` + 1 ascending offsets are there, all within the data. */
    private static boolean areOffsets(long address, long length, int rows, long dataBytes) {
        if (length < 4L * (rows + 1L)) {
            return false;
        }
        int before = Platform.getInt(null, address);
        if (before < 0) {
            return false;
        }
        for (int row = 1; row <= rows; row++) {
            int next = Platform.getInt(null, address + 4L * row);
            if (next < before) {
                return false;
            }
            before = next;
        }
        return before <= dataBytes;
    }

    private void check(boolean holds, String otherwise) {
        if (!holds) {
            throw broken(otherwise);
        }
    }

    private IllegalStateException broken(String why) {
        return new IllegalStateException("a batch of table " + table + " is broken: " + why);
    }

    static boolean isVariable(DataType type) {
        return type.equals(DataTypes.StringType) || type instanceof BinaryType;
    }

    /** The size of a value in bytes. */
    private static int width(DataType type) {
        if (type instanceof DecimalType) {
            return 16;
        }
        boolean isTimestamp = type instanceof TimestampType || type instanceof TimestampNTZType;
        if (type instanceof LongType || type instanceof DoubleType || isTimestamp) {
            return 8;
        }
        return type instanceof ByteType ? 1 : type instanceof ShortType ? 2 : 4;
    }

    /** Reads values by address: ArrowColumnVector goes through three objects to a value, and checks bounds. */
    public static class DirectVector extends ColumnVector {
        private static final long[] POWERS = powersOfTen();

        private final int nulls;
        private final long validity;
        private final long values;
        private final long offsets;

        /** `validity` is 0 without nulls; only strings and binary values have `offsets`. */
        DirectVector(DataType type, int nulls, long validity, long values, long offsets) {
            super(type);
            this.nulls = nulls;
            this.validity = validity;
            this.values = values;
            this.offsets = offsets;
        }

        private static long[] powersOfTen() {
            long[] powers = new long[19];
            powers[0] = 1;
            for (int i = 1; i < powers.length; i++) {
                powers[i] = powers[i - 1] * 10;
            }
            return powers;
        }

        /** Nothing to free: the reader owns the memory. */
        public void close() {
        }

        public boolean hasNull() {
            return nulls > 0;
        }

        public int numNulls() {
            return nulls;
        }

        public boolean isNullAt(int row) {
            return validity != 0 && (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0;
        }

        public boolean getBoolean(int row) {
            return (Platform.getByte(null, values + (row >> 3)) >> (row & 7) & 1) == 1;
        }

        public byte getByte(int row) {
            return Platform.getByte(null, values + row);
        }

        public short getShort(int row) {
            return Platform.getShort(null, values + 2L * row);
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

        public Decimal getDecimal(int row, int precision, int scale) {
            if (isNullAt(row)) {
                return null;
            }
            long low = Platform.getLong(null, values + 16L * row);
            long high = Platform.getLong(null, values + 16L * row + 8);
            if (precision <= Decimal.MAX_LONG_DIGITS()) {
                if (high != low >> 63 || low >= POWERS[precision] || low <= -POWERS[precision]) {
                    throw new IllegalStateException("a value of the table does not fit its type, " + dataType());
                }
                return Decimal.createUnsafe(low, precision, scale);
            }
            byte[] number = ByteBuffer.allocate(16).putLong(high).putLong(low).array();
            return Decimal.apply(new BigDecimal(new BigInteger(number), scale), precision, scale);
        }

        public UTF8String getUTF8String(int row) {
            if (isNullAt(row)) {
                return null;
            }
            int start = Platform.getInt(null, offsets + 4L * row);
            return UTF8String.fromAddress(null, values + start, Platform.getInt(null, offsets + 4L * row + 4) - start);
        }

        public byte[] getBinary(int row) {
            return isNullAt(row) ? null : getUTF8String(row).getBytes();
        }

        public ColumnarArray getArray(int row) {
            throw nested();
        }

        public ColumnarMap getMap(int row) {
            throw nested();
        }

        public ColumnVector getChild(int ordinal) {
            throw nested();
        }

        private UnsupportedOperationException nested() {
            return new UnsupportedOperationException("column of type " + dataType() + " has no nested values");
        }
    }
}
